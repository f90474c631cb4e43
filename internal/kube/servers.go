package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// This file sees to it that an API server that is late lets nobody go. Where deletions are guarded, each of them
// decides by the budgets that are in a cache of its own (ADR 23). Before anybody may go, all of them have to know what
// has closed, so that none goes by a time when somebody else was free to go.

// APIServers are the API servers of a cluster, of which there may be several behind one address.
type APIServers interface {
	// Ask asks each by which budgets of a namespace it decides deletions, by way of one of these budgets. all: these are
	// all that there are. Where nothing guards the namespace, one server that knows of no budget is all.
	Ask(ctx context.Context, namespace, budget string) (sights []ServerSight, all bool)
}

// ServerSight is what an API server says of itself.
type ServerSight struct {
	Server string // its address
	// Knows are the budgets by which it decides deletions: of each, by name, which generation of it.
	Knows map[string]int64
	Err   error // it could not be asked
}

const (
	// awaitsServer is how long one is waited for that does not answer. Others take one that is dead off their list after
	// 15 s (kube-apiserver's lease for its endpoint).
	awaitsServer = 20 * time.Second
	// unlisted is how long budgets have to be as they are where nobody says which API servers there are. Of two that share
	// an etcd on two cores, one was 93 ms behind at most.
	unlisted = time.Second
	// stuckAfter is when one that is late will not catch up by itself: none takes seconds.
	stuckAfter = time.Minute
	// asksServers is how long one call waits for those that are late, if it has as much time, and asksEvery how often it
	// asks them. It is worth waiting for as long as it takes where nobody says which there are: another call would begin
	// with another look, and the policy's events would tell of closing and opening in between.
	asksServers, asksEvery = unlisted + 200*time.Millisecond, 20 * time.Millisecond
	// answersWithin is how long an API server may take to answer, so that those that do need not wait for one that does
	// not.
	answersWithin = 500 * time.Millisecond
)

// lateServer says why nothing may open yet: which API server decides by budgets older than those that are wanted, by
// name and generation. age is for how long the budgets have been so. "": all know them, as far as can be known.
func lateServer(sights []ServerSight, all bool, wanted map[string]int64, age time.Duration) string {
	guarded := slices.ContainsFunc(sights, func(s ServerSight) bool { return len(s.Knows) > 0 })
	if !guarded && all {
		return ""
	}
	for _, s := range sights {
		if s.Err != nil {
			if age < awaitsServer {
				return fmt.Sprintf("the API server at %s does not say by which budgets it decides deletions: %s", s.Server,
					storage.Clip(s.Err.Error(), mostOfError))
			}
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(wanted)) {
			if s.Knows[name] < wanted[name] {
				why := fmt.Sprintf("the API server at %s still decides deletions by an older PodDisruptionBudget %s",
					s.Server, name)
				if age > stuckAfter {
					why += ": restart it (docs/runbooks/guard-deletions.md)"
				}
				return why
			}
		}
	}
	if !all && age < unlisted {
		return "nobody says whether there are more API servers, which may decide deletions by older PodDisruptionBudgets"
	}
	return ""
}

// mostOfError is how much of an error a status repeats.
const mostOfError = 120

// guardedAs is what budgets that guard deletions, and let nobody go, were when they were read.
type guardedAs struct {
	generations map[string]int64
	since       time.Time
}

// note takes down which budgets guard a policy's deletions, and since when they are so as far as this process knows. Of
// one that is open nobody has to know more than when it was opened: what else it lets go is of the same failure domain.
func (c *Cluster) note(key storage.ClusterKey, budgets []policyv1.PodDisruptionBudget) (now guardedAs, guards string) {
	now = guardedAs{generations: map[string]int64{}, since: time.Now()}
	for i := range budgets {
		b := &budgets[i]
		if !ours(b) || b.Labels[LabelPolicy] != key.Name || b.Labels[LabelGuards] != GuardsDeletions {
			continue
		}
		if guards = cmp.Or(guards, b.Name); !leaves(b) {
			now.generations[b.Name] = b.Generation
		}
	}
	if was, ok := c.guarded.Load(key); ok && maps.Equal(was.(guardedAs).generations, now.generations) {
		return was.(guardedAs), guards
	}
	c.guarded.Store(key, now)
	return now, guards
}

// late says why nobody else may be let go yet; "": there is no reason, or nobody is to be.
func (c *Cluster) late(
	ctx context.Context, p *v1alpha1.MaintenancePolicy, budgets []policyv1.PodDisruptionBudget, specs budget.Specs,
) (why string) {
	as, by := c.note(storage.ClusterKey{Namespace: p.Namespace, Name: p.Name}, budgets)
	if c.servers == nil || by == "" || !letsOthersGo(p, budgets, specs) {
		return ""
	}
	end := time.Now().Add(asksServers)
	if last, ok := ctx.Deadline(); ok && last.Add(-answersWithin).Before(end) {
		end = last.Add(-answersWithin) // so that there is time to say who is late, or to write
	}
	for {
		sights, all := c.servers.Ask(ctx, p.Namespace, by)
		why = lateServer(sights, all, as.generations, time.Since(as.since))
		if why == "" || !time.Now().Before(end) {
			return why
		}
		select {
		case <-ctx.Done():
			return why
		case <-time.After(asksEvery):
		}
	}
}

// letsOthersGo tells whether a budget is to let pods go that it does not let go now. At rest that is one eviction,
// which must not meet the deletion of a pod that was free to go a moment ago.
func letsOthersGo(
	p *v1alpha1.MaintenancePolicy, budgets []policyv1.PodDisruptionBudget, specs budget.Specs,
) bool {
	if specs.Unproved == nil {
		return false // of version 0.1, which knew no guard
	}
	others := func(spec budget.Spec, want *policyv1.PodDisruptionBudget) bool {
		have, had := find(budgets, want.Name)
		lets := len(spec.Except) > 0 || !spec.Quiet && spec.MinAvailable < budget.Everything
		return lets && (!had || !equality.Semantic.DeepEqual(have.Spec, want.Spec))
	}
	return others(specs.Daemons, markedBudget(p).of(p, specs.Daemons)) ||
		others(*specs.Unproved, unmarkedBudget(p).of(p, *specs.Unproved)) ||
		specs.Mons != nil && others(*specs.Mons, monBudget(p, *specs.Mons))
}

// apiServers asks real ones.
type apiServers struct {
	cfg *rest.Config
	own *kubernetes.Clientset
	// within is how long one may take to answer.
	within time.Duration
	mu     sync.Mutex
	// others are connections to single API servers, by their address.
	others map[string]*kubernetes.Clientset
}

func newAPIServers(cfg *rest.Config) (*apiServers, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{} // they are what is asked for
	own, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &apiServers{cfg: cfg, own: own, within: answersWithin, others: map[string]*kubernetes.Clientset{}}, nil
}

// Ask implements APIServers.
func (a *apiServers) Ask(ctx context.Context, namespace, budget string) (sights []ServerSight, all bool) {
	first := a.sight(ctx, a.cfg.Host, a.own, namespace, budget)
	if first.Err != nil || len(first.Knows) == 0 {
		return []ServerSight{first}, first.Err == nil
	}
	servers := a.each(ctx)
	if len(servers) == 0 {
		return []ServerSight{first}, false
	}
	sights = make([]ServerSight, len(servers)+1)
	var asked sync.WaitGroup
	for i, address := range slices.Sorted(maps.Keys(servers)) {
		asked.Go(func() { sights[i] = a.sight(ctx, address, servers[address], namespace, budget) })
	}
	asked.Wait()
	sights[len(servers)] = first
	return sights, true
}

// sight asks one server, by a change that changes nothing and is not made either.
func (a *apiServers) sight(
	ctx context.Context, address string, server *kubernetes.Clientset, namespace, budget string,
) ServerSight {
	ctx, stop := context.WithTimeout(ctx, a.within)
	defer stop()
	out := ServerSight{Server: address, Knows: map[string]int64{}}
	answer := server.PolicyV1().RESTClient().Patch(types.MergePatchType).Namespace(namespace).
		Resource("poddisruptionbudgets").Name(budget).Param("dryRun", metav1.DryRunAll).
		Param("fieldManager", FieldOwner).Body([]byte("{}")).Do(ctx)
	if out.Err = answer.Error(); out.Err != nil {
		return out
	}
	for _, w := range answer.Warnings() {
		if name, generation, ok := knownBudget(w.Text); ok {
			out.Knows[name] = generation
		}
	}
	return out
}

// knownBudget reads what the guard tells of one budget: "NAME GENERATION".
func knownBudget(said string) (name string, generation int64, ok bool) {
	_, rest, ok := strings.Cut(said, "ValidatingAdmissionPolicy '"+GuardOfServers+"' with binding ")
	if !ok {
		return "", 0, false
	}
	_, rest, _ = strings.Cut(rest, "': ")
	name, number, _ := strings.Cut(rest, " ")
	generation, err := strconv.ParseInt(number, 10, 64)
	return name, generation, err == nil
}

// each are the API servers as they announce themselves, by their address. None: nobody says, or it may not be read.
func (a *apiServers) each(ctx context.Context) map[string]*kubernetes.Clientset {
	ctx, stop := context.WithTimeout(ctx, a.within)
	defer stop()
	slice, err := a.own.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	out := map[string]*kubernetes.Clientset{}
	for _, port := range slice.Ports {
		for _, e := range slice.Endpoints {
			for _, ip := range e.Addresses {
				if port.Port == nil {
					continue
				}
				address := net.JoinHostPort(ip, strconv.Itoa(int(*port.Port)))
				if out[address], err = a.at(address); err != nil {
					return nil
				}
			}
		}
	}
	return out
}

// at is the connection to one API server. Its certificate is good for the address by which all of them are reached, and
// need not be for its own.
func (a *apiServers) at(address string) (*kubernetes.Clientset, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.others[address]; c != nil {
		return c, nil
	}
	cfg := rest.CopyConfig(a.cfg)
	if cfg.ServerName == "" {
		host, err := url.Parse(cfg.Host)
		if err != nil {
			return nil, err
		}
		cfg.ServerName = host.Hostname()
	}
	cfg.Host = "https://" + address
	made, err := kubernetes.NewForConfig(cfg)
	if err == nil {
		a.others[address] = made
	}
	return made, err
}
