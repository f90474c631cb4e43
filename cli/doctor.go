package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/machines"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Findings of a check.
const (
	FoundOK      = "ok"
	FoundBroken  = "broken"
	FoundWarning = "warning" // works, but not as it should
	FoundUnknown = "unknown" // could not be looked at
)

// Finding is what one check found.
type Finding struct {
	Check   string `json:"check"`
	Result  string `json:"result"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"` // how to mend it
}

// Diagnosis is all that the doctor found. Its field names are stable: scripts rely on them.
type Diagnosis struct {
	Healthy  bool      `json:"healthy"` // nothing is broken
	Findings []Finding `json:"findings"`
}

// Installation is what the doctor asks of Kubernetes beyond what everybody asks.
type Installation interface {
	ServerVersion(ctx context.Context) (string, error)
	CRD(ctx context.Context, name kube.CRD) (found bool, answer storage.Answer, err error)
	CephOSDs(ctx context.Context, namespace string) ([]cephv1alpha1.CephOSD, error)
	May(ctx context.Context, who kube.Account, r kube.Right) (bool, error)
	ForeignBudget(ctx context.Context, p *v1alpha1.MaintenancePolicy) (string, error)
	Second(ctx context.Context, p *v1alpha1.MaintenancePolicy) (storage.Answer, error)
	MonEndpoints(ctx context.Context, p *v1alpha1.MaintenancePolicy) (string, error)
	// Karpenter is what it does not ask the budgets about.
	Karpenter(ctx context.Context, p *v1alpha1.MaintenancePolicy) (kube.Karpenter, error)
	// DeletionGuard is how deploy/guard-deletions is installed; GuardingBudgets are the budgets that it may go by.
	DeletionGuard(ctx context.Context) (kube.DeletionGuard, error)
	GuardingBudgets(ctx context.Context, p *v1alpha1.MaintenancePolicy) (map[string]bool, error)
}

// Machines is what the doctor asks of the APIs that fence nodes. nodes are those that host storage daemons.
type Machines func(ctx context.Context, p *v1alpha1.MaintenancePolicy, nodes []string) ([]machines.Problem, error)

var _ Installation = (*kube.Cluster)(nil)

// Doctor looks for what is missing or wrong. It changes nothing.
type Doctor struct {
	*Command
	Installation Installation
	Machines     Machines
	System       string // namespace of the watcher and the worker
	Namespace    string // of the policies; "": all

	policies      []v1alpha1.MaintenancePolicy // that were found
	second        map[string]bool              // of them, those whose storage cluster another one looks after
	serverVersion string                       // of Kubernetes
	noKube        bool                         // Kubernetes does not answer
	noTalk        bool                         // Temporal does not answer
	findings      []Finding
	check         string // that is being made
}

// A check looks at one thing, and says what it found.
type check struct {
	name string
	look func(*Doctor, context.Context)
	// kubernetes, temporal: it has to ask them, so that it is not made when they do not answer. That was said already.
	kubernetes, temporal bool
}

// checks go from the ground up: what a later one finds may only be a consequence of what an earlier one found.
var checks = []check{
	{name: "Kubernetes", look: (*Doctor).kubernetes},                  // without it little can be said
	{name: "own rights", look: (*Doctor).ownRights, kubernetes: true}, // else the rest is guesswork
	// the CRDs, as this program knows them
	{name: "API", look: (*Doctor).api, kubernetes: true},
	// somebody has to say what to look after
	{name: "policies", look: (*Doctor).lookPolicies, kubernetes: true},
	{name: "daemons", look: (*Doctor).daemons, kubernetes: true}, // and select what is there
	// one policy for each storage cluster
	{name: "precedence", look: (*Doctor).precedence, kubernetes: true},
	// under two, no eviction succeeds
	{name: "other budgets", look: (*Doctor).otherBudgets, kubernetes: true},
	// what else takes nodes away
	{name: "fencing", look: (*Doctor).fencing, kubernetes: true},
	{name: "Karpenter", look: (*Doctor).karpenter, kubernetes: true},
	// of those who want deletions to wait as evictions do
	{name: "guard of deletions", look: (*Doctor).guard, kubernetes: true},
	{name: "addresses of the mons", look: (*Doctor).monEndpoints, kubernetes: true},  // where Ceph is
	{name: "rights of watcher and worker", look: (*Doctor).rights, kubernetes: true}, // all of deploy/rbac.yaml
	// tells the keepers what changes
	{name: "watcher", look: (*Doctor).watcher, kubernetes: true},
	{name: "Temporal", look: (*Doctor).temporal},             // where the jobs are
	{name: "worker", look: (*Doctor).worker, temporal: true}, // does what the jobs say
	// of those who want lockkeeper to make pods, or to restart them
	{name: "rights for OSDs", look: (*Doctor).rightsForOSDs, kubernetes: true},
	{name: "keepers", look: (*Doctor).keepers, kubernetes: true, temporal: true},          // one for each policy
	{name: "storage clusters", look: (*Doctor).storage, kubernetes: true, temporal: true}, // as their keepers see them
	// whose rollouts somebody has to start, and mend
	{name: "CephOSDs", look: (*Doctor).cephOSDs, kubernetes: true, temporal: true},
}

// Examine makes all checks.
func (d *Doctor) Examine(ctx context.Context) Diagnosis {
	d.second = map[string]bool{}
	for _, c := range checks {
		d.check = c.name
		switch {
		case c.kubernetes && d.noKube:
			d.found(FoundUnknown, "Kubernetes does not answer", "")
		case c.temporal && d.noTalk:
			d.found(FoundUnknown, "Temporal does not answer", "")
		default:
			c.look(d, ctx)
		}
	}
	out := Diagnosis{Healthy: true, Findings: d.findings}
	for _, f := range d.findings {
		out.Healthy = out.Healthy && f.Result != FoundBroken
	}
	return out
}

func (d *Doctor) found(result, message, remedy string) {
	d.findings = append(d.findings, Finding{Check: d.check, Result: result, Message: message, Remedy: remedy})
}

func (d *Doctor) ok(format string, args ...any) { d.found(FoundOK, fmt.Sprintf(format, args...), "") }

// unknown: nobody could tell. That is not broken; what it takes to tell is the remedy.
func (d *Doctor) unknown(what string, err error) {
	d.found(FoundUnknown, what+": "+err.Error(), "ask again as somebody who may look")
}

// Write puts a diagnosis into words.
func (x Diagnosis) Write(w io.Writer) {
	broken := 0
	for _, f := range x.Findings {
		result := f.Result
		if result == FoundBroken {
			result = "BROKEN"
			broken++
		}
		fmt.Fprintf(w, "%-8s %s: %s\n", result, f.Check, strings.ReplaceAll(f.Message, "\n", "\n         "))
		if f.Remedy != "" {
			fmt.Fprintf(w, "         → %s\n", strings.ReplaceAll(f.Remedy, "\n", "\n           "))
		}
	}
	switch broken {
	case 0:
		fmt.Fprintln(w, "\nNothing is broken.")
	case 1:
		fmt.Fprintln(w, "\nOne thing is broken. Nothing was changed.")
	default:
		fmt.Fprintf(w, "\n%d things are broken; begin with the first. Nothing was changed.\n", broken)
	}
}
