package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockkeeper/lockkeeper/internal/kube"
)

// podPrefix tells a pod from a node on the command line, as kubectl writes it.
const podPrefix = "pod/"

// PodExplanation answers "may this pod be deleted now?", and if not: what it waits for. Its field names are stable:
// scripts rely on them.
type PodExplanation struct {
	At        time.Time `json:"at"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Daemon    string    `json:"daemon,omitempty"`
	Node      string    `json:"node,omitempty"`
	Owner     string    `json:"owner,omitempty"` // what replaces it
	// MayDelete is the API server's answer to a dry run, so that of the guard.
	MayDelete bool `json:"mayDelete"`
	// Terminating: somebody has deleted it already.
	Terminating bool `json:"terminating,omitempty"`
	// Refused is the guard's own sentence; Warned the same where it does no more than warn.
	Refused string `json:"refused,omitempty"`
	Warned  string `json:"warned,omitempty"`
	// Other is what somebody else's policy or webhook says.
	Other string `json:"other,omitempty"`
	// Wish is who wants the pod gone, and Turn how it gets its turn, if anybody does.
	Wish *kube.StorageWish `json:"wish,omitempty"`
	Turn string            `json:"turn,omitempty"`
	// Taint is the key of the node's taint that is to drive the pod off; Turn says of it, too.
	Taint string `json:"taint,omitempty"`
	// Drain is what a drain of the pod's node would meet: what is in its way is in the pod's way, too. Nil: the pod does
	// not wait, or nobody knows.
	Drain *Explanation `json:"drain,omitempty"`
	// Unknown says why Drain is nil.
	Unknown string `json:"unknown,omitempty"`
	// Mon is what MigrateMons says of the mon; nil: it is none, or no CephMon knows of it.
	Mon *MonsExplanation `json:"mon,omitempty"`
}

// ExplainsPod tells whether an argument of explain names a pod, and which.
func ExplainsPod(arg string) (string, bool) { return strings.CutPrefix(arg, podPrefix) }

// ExplainPod asks the API server whether a pod may be deleted now, by a dry run. If the guard refuses, it finds out
// what would have to change.
func (c *Command) ExplainPod(ctx context.Context, namespace, pod, policy, system string) (PodExplanation, error) {
	e := PodExplanation{At: c.Now(), Namespace: namespace, Pod: pod}
	if problems := validation.IsDNS1123Subdomain(pod); len(problems) > 0 {
		return e, wrong("POD", pod, "no name of a pod: "+strings.Join(problems, "; "))
	}
	d, err := c.Kubernetes.TryDelete(ctx, namespace, pod)
	if err != nil {
		return e, fmt.Errorf("ask whether pod %s/%s may be deleted: %w", namespace, pod, err)
	}
	if !d.Found {
		return e, wrong("POD", podPrefix+pod, "no such pod in namespace "+namespace+"; `kubectl -n "+namespace+
			" get pods` lists them, and --namespace names another one")
	}
	e.Daemon, e.Node, e.Owner, e.Terminating = d.Daemon, d.Node, d.Owner, d.Terminating
	e.Refused, e.Warned, e.Other = d.Refused, d.Warned, d.Other
	e.MayDelete = d.Refused == "" && d.Other == ""
	if mon, ok := strings.CutPrefix(d.Daemon, "mon."); ok {
		// That it cannot be found out, as where there are no CephMons, takes nothing from the answer.
		if m, err := c.ExplainMon(ctx, namespace, mon); err == nil {
			e.Mon = &m
		}
	}
	if (d.Refused == "" && d.Warned == "") || d.Node == "" {
		return e, nil
	}
	c.wish(ctx, &e)
	switch drain, err := c.Explain(ctx, d.Node, policy, system); {
	case err != nil:
		e.Unknown = err.Error() // the guard's answer stands all the same
	default:
		e.Drain = &drain
	}
	return e, nil
}

// wish finds out whether a controller wants the pod gone, or a taint is to drive it off. That it cannot be found out
// takes nothing from the answer.
func (c *Command) wish(ctx context.Context, e *PodExplanation) {
	policies, err := c.Kubernetes.MaintenancePolicies(ctx, e.Namespace)
	if err != nil {
		return
	}
	for i := range policies {
		p := policyStatus(&policies[i], e.At)
		p.restarts(&policies[i])
		wishes, err := c.Kubernetes.StorageWishes(ctx, &policies[i])
		at := slices.IndexFunc(wishes, func(w kube.StorageWish) bool { return w.Pod == e.Pod })
		if err == nil && at >= 0 {
			e.Wish, e.Turn = &wishes[at], p.turn()
			return
		}
		driven, err := c.Kubernetes.DrivenOff(ctx, &policies[i])
		at = slices.IndexFunc(driven, func(d kube.DrivenDaemon) bool { return d.Pod == e.Pod })
		if err == nil && at >= 0 {
			e.Taint, e.Turn = driven[at].Taint, p.turnOf(driven[at])
			return
		}
	}
}

// Write puts an explanation into words: the answer first, and the guard's own.
func (e PodExplanation) Write(w io.Writer) {
	answer := "No."
	if e.MayDelete {
		answer = "Yes."
	}
	fmt.Fprintf(w, "May I delete pod %s now? %s\n\n", e.Pod, answer)
	fmt.Fprintf(w, "%s: %s.\n", e.Pod, e.describe())
	switch {
	case e.Terminating:
		fmt.Fprintln(w, "Somebody has deleted it already.")
	case e.Other != "":
		fmt.Fprintf(w, "Not lockkeeper's guard refuses, but: %s\n", e.Other)
	case e.Refused != "":
		fmt.Fprintf(w, "The guard says: %s.\n", e.Refused)
	case e.Warned != "":
		fmt.Fprintf(w, "The guard only warns: %s.\n", e.Warned)
	default:
		fmt.Fprintln(w, "The API server would let it go: asked by a dry run.")
	}
	if e.Wish != nil {
		fmt.Fprintf(w, "Somebody wants it gone: %s. It gets its turn %s.\n", e.Wish, e.Turn)
	}
	if e.Taint != "" {
		fmt.Fprintf(w, "The taint %s of %s is to drive it off, and the taint manager tries no more. It gets its turn %s.\n",
			e.Taint, e.Node, e.Turn)
	}
	if e.Unknown != "" {
		fmt.Fprintf(w, "What it waits for could not be found out: %s\n", e.Unknown)
	}
	if e.Drain != nil {
		e.writeWait(w)
	}
	if e.Mon != nil {
		fmt.Fprintln(w)
		e.Mon.Write(w)
	}
}

// writeWait tells what keeps the pod's failure domain closed, or how to have it opened.
func (e PodExplanation) writeWait(w io.Writer) {
	d := *e.Drain
	if len(d.InTheWay) == 0 {
		e.writeHow(w, d)
		return
	}
	d.list(w, "It waits for "+orUnknown(d.Domain)+" to open, as a drain of "+e.Node+" does. In the way:", d.InTheWay)
}

// writeHow tells how to have the failure domain opened when nothing is in the way of that. A cordon announces that its
// OSDs may go, once.
func (e PodExplanation) writeHow(w io.Writer, d Explanation) {
	if e.Taint != "" {
		fmt.Fprintf(w, "\nNothing is in the way of opening %s.\n", orUnknown(d.Domain))
		return
	}
	fmt.Fprintf(w, "\nNothing is in the way of opening %s. To have it opened, and the pod go:\n", orUnknown(d.Domain))
	if d.State.Cordoned {
		fmt.Fprintf(w, "  kubectl uncordon %s\n", e.Node)
	}
	fmt.Fprintf(w, "  kubectl cordon %s\n  kubectl -n %s delete pod %s    # again, until it goes: within seconds\n"+
		"  kubectl uncordon %[1]s    # when the pod has been replaced\n", e.Node, e.Namespace, e.Pod)
}

func (e PodExplanation) describe() string {
	what := "neither an OSD nor a mon"
	if e.Daemon != "" {
		what = e.Daemon
	}
	if e.Node != "" {
		what += " on " + e.Node
	} else {
		what += ", on no node yet"
	}
	if e.Owner == "" {
		return what + "; nothing replaces it"
	}
	return what + "; " + e.Owner + " replaces it"
}
