package longhorncluster

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/guard/longhornguard"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/leaving"
	"github.com/lockkeeper/lockkeeper/internal/longhorn"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Kubernetes is what is read and marked of the pods of instance managers.
type Kubernetes interface {
	MaintenancePolicy(ctx context.Context, key storage.ClusterKey) (*v1alpha1.MaintenancePolicy, error)
	NamespaceUID(ctx context.Context, name string) (string, error)
	MarkPods(ctx context.Context, p *v1alpha1.MaintenancePolicy, pods []storageview.Pod, progress func(done int)) (int,
		error)
	UnmarkPods(ctx context.Context, p *v1alpha1.MaintenancePolicy, pods []storageview.Pod, progress func(done int)) (int,
		error)
}

// cluster is the installation of one policy. It implements activities.StorageCluster.
type cluster struct {
	kube   Kubernetes
	policy *v1alpha1.MaintenancePolicy
	api    API
	reader *Reader
	caches *caches
}

// sight is one look. pods are those of instance managers.
type sight struct {
	pods      []storageview.Pod
	world     longhorn.World
	decision  longhorn.Decision
	admission []longhorn.Admission
	unheld    []string // nodes that must not go, and from which autoscalers are not held back
	missed    []string // those of which that is news
}

func (c *cluster) look(ctx context.Context, from *Reader, turns longhorn.Turns) (s sight, err error) {
	objects, err := from.Objects(ctx)
	if err != nil {
		return s, err
	}
	s.pods = managerPods(objects.Pods)
	settings := kube.Settings(&c.policy.Spec)
	objects.Now, objects.Before = time.Now(), Before{
		Kept: unmarkedNodes(s.pods), TaintExpiry: settings.RemovalTaintExpiry, EvictOnRemoval: settings.EvictOnRemoval,
	}
	s.world = objects.World()
	for i := range s.world.Managers { // Longhorn hears of its pods a moment later
		if m := &s.world.Managers[i]; !s.serves(*m) && m.State == longhorn.Running {
			m.State = stopping
		}
		s.world.Managers[i].Ended = s.ended(s.world.Managers[i])
	}
	s.decision, s.admission = longhorn.DecideInTurn(s.world, turns)
	s.unheld = unheld(objects.Nodes, s.decision, storage.ClusterKey{Namespace: c.policy.Namespace, Name: c.policy.Name})
	return s, nil
}

// unheld lists the nodes that must not go, and from which autoscalers are not held back, by name.
func unheld(nodes []corev1.Node, d longhorn.Decision, policy storage.ClusterKey) (names []string) {
	stays := map[string]bool{}
	for _, n := range d.Nodes {
		stays[n.Node] = n.Stay
	}
	for i := range nodes {
		if n := &nodes[i]; stays[n.Name] && kube.Unheld(n, policy) {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names
}

// stopping is the state of an instance manager whose pod is not ready, whatever Longhorn says of it.
const stopping = "its pod is not ready"

// managerPods are the pods of instance managers that have not ended.
func managerPods(all []corev1.Pod) (out []storageview.Pod) {
	for i := range all {
		p := &all[i]
		ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
		if p.Labels[componentLabel] == kube.InstanceManager && !ended {
			out = append(out, kube.StoragePod(p, ""))
		}
	}
	return out
}

// unmarkedNodes are the nodes whose instance managers carry no mark: by the last decision they were kept. Of those that
// had to be kept anyway it says nothing new.
func unmarkedNodes(pods []storageview.Pod) (names []string) {
	for i := range pods {
		if node := nodeOf(&pods[i]); node != "" && !pods[i].Marked() {
			names = append(names, node)
		}
	}
	return names
}

// nodeOf is the node of an instance manager by Longhorn's label, by which budgets go, too.
func nodeOf(p *storageview.Pod) string { return p.Labels[kube.LonghornNode] }

// Observe implements activities.StorageCluster.
func (c *cluster) Observe(ctx context.Context, in activities.Look) (activities.Seen, error) {
	out := activities.Seen{Kind: storage.Longhorn}
	var (
		together sync.WaitGroup
		unnamed  error
	)
	together.Go(func() { out.ID, unnamed = c.kube.NamespaceUID(ctx, c.policy.Namespace) })
	s, err := c.look(ctx, c.reader, longhorn.Turns{
		Held: in.Held, First: in.Domains, Asked: in.Nodes, Last: in.Last, Went: in.Went, Over: in.Over,
	})
	if together.Wait(); unnamed != nil {
		return activities.Seen{}, unnamed
	}
	if errors.Is(err, ErrNotInstalled) {
		out.View = storage.View{At: time.Now(), Unavailable: err.Error()}
		return out, nil
	}
	if err != nil {
		return activities.Seen{}, err
	}
	out.View = s.view(slices.Concat(in.Held, in.Domains, in.Nodes, in.Last))
	out.Own, err = json.Marshal(s.told())
	return out, err
}

// told is what the guard judges by.
func (s sight) told() longhornguard.Look {
	l := longhornguard.Look{
		Summary: s.decision.Summary(), Admitted: s.admission, Managers: s.managers(), Settings: s.world.Settings,
		Moves: &s.world.EvictOnRemoval, Unheld: s.unheld,
	}
	copies := map[string]int{}
	for _, r := range s.world.Replicas {
		copies[r.Volume]++
	}
	for _, v := range s.world.Volumes {
		if copies[v.Name] != 1 {
			continue
		}
		if l.Single++; l.SingleExample == "" || v.Name < l.SingleExample {
			l.SingleExample = v.Name
		}
	}
	return l
}

// managers tells of each node that should run instance managers whether all of them do.
func (s sight) managers() map[string]longhornguard.Managers {
	out := map[string]longhornguard.Managers{}
	for _, m := range s.world.Managers {
		if m.Node == "" {
			continue
		}
		of, has := out[m.Node]
		of.Running = (of.Running || !has) && s.serves(m)
		out[m.Node] = of
	}
	return out
}

// serves tells whether an instance manager runs, and its pod is ready.
func (s sight) serves(m longhorn.Manager) bool {
	return m.State == longhorn.Running && slices.ContainsFunc(s.pods, func(p storageview.Pod) bool {
		return p.Name == m.Name && p.State == storage.PodReady
	})
}

// ended tells whether an instance manager has no pod, or one that never comes back.
func (s sight) ended(m longhorn.Manager) bool {
	return !slices.ContainsFunc(s.pods, func(p storageview.Pod) bool {
		return p.Name == m.Name && p.State != storage.PodTerminating
	})
}

// view is what a look sees in the words of all kinds of storage: each node is a failure domain.
func (s sight) view(asked []string) storage.View {
	v := storage.View{
		At: time.Now(), FailureDomainType: longhornguard.NodeDomain, LabelKey: kube.LonghornNode, Marks: s.marks(),
		Daemons: len(s.world.Managers), Version: s.world.Version,
	}
	nodes := map[string]*storage.Node{}
	for _, n := range s.decision.Nodes {
		nodes[n.Node] = &storage.Node{Name: n.Node, Domain: n.Node, Gone: n.Leaving == longhorn.Gone}
	}
	for _, w := range s.world.Nodes {
		if n := nodes[w.Name]; n != nil {
			n.Cordoned, n.NotReady, n.Tainted = w.Cordoned, !w.Ready, s.tainted(w)
		}
	}
	for _, m := range s.world.Managers {
		serves := s.serves(m)
		if serves {
			v.Up++
		}
		n := nodes[m.Node]
		if n == nil {
			continue
		}
		if n.Daemons = append(n.Daemons, m.Name); !serves {
			n.Down = append(n.Down, m.Name)
		}
	}
	for _, d := range s.decision.Nodes { // in their order
		n := nodes[d.Node]
		if len(n.Daemons) > 0 && (n.Leaving() || n.NotReady || len(n.Down) > 0 || slices.Contains(asked, n.Name)) {
			v.Nodes = append(v.Nodes, *n)
		}
	}
	for _, f := range s.decision.Faults {
		v.Notes = append(v.Notes, f.String())
	}
	return v
}

// tainted is the taint that announces a node's removal, if it counts.
func (s sight) tainted(n longhorn.Node) string {
	i := slices.IndexFunc(s.decision.Nodes, func(d longhorn.NodeVerdict) bool { return d.Node == n.Name })
	switch {
	case n.Disrupted:
		return leaving.DisruptedTaint
	case n.HasRemovalTaint && i >= 0 && s.decision.Nodes[i].Leaving == longhorn.RemovalTaint:
		return leaving.RemovalTaint
	default:
		return ""
	}
}

// spare are the pods that may carry a mark: one of them may go while no node is leaving.
func (s sight) spare() (out []*storageview.Pod) {
	for _, m := range s.world.Managers {
		i := slices.IndexFunc(s.decision.Managers, func(v longhorn.Verdict) bool { return v.Manager == m.Name })
		if i < 0 || s.decision.Managers[i].State != longhorn.Spare || !s.serves(m) {
			continue
		}
		for k := range s.pods {
			if p := &s.pods[k]; p.Name == m.Name && nodeOf(p) == m.Node {
				out = append(out, p)
			}
		}
	}
	return out
}

// marks counts the marks. A pod that is terminating never comes back, so nobody has to take its mark away.
func (s sight) marks() *storage.Marks {
	var m storage.Marks
	spare := s.spare()
	for i := range s.pods {
		switch p := &s.pods[i]; {
		case slices.Contains(spare, p) && p.Proved():
			m.Proved++
		case slices.Contains(spare, p):
			m.Unproved++
		case p.Marked() && p.State != storage.PodTerminating:
			m.Stale++
		}
	}
	return &m
}

// Mark implements activities.StorageCluster: it marks the pods of which one may go.
func (c *cluster) Mark(
	ctx context.Context, in activities.Marking, beat func(activities.Marked),
) (out activities.Marked, err error) {
	s, err := c.look(ctx, c.reader, longhorn.Turns{Held: in.Held})
	if err != nil {
		return out, err
	}
	pods, left := s.toMark(in.Most)
	out.Done, err = c.kube.MarkPods(ctx, c.policy, pods, func(done int) { beat(activities.Marked{Done: done}) })
	out.Left = left + len(pods) - out.Done
	return out, err
}

// toMark are the pods that are to get a mark, and how many are left without. Who is spare may be others than when the
// budgets were written, which let all go but as many as they counted then: so no more pods have marks than that, those
// included that have one and should not.
func (s sight) toMark(most int) (pods []storageview.Pod, left int) {
	marked := 0
	for i := range s.pods {
		if p := &s.pods[i]; p.Marked() && p.State != storage.PodTerminating {
			marked++
		}
	}
	for _, p := range s.spare() {
		switch {
		case p.Proved():
		case most > 0 && marked >= most && !p.Marked():
			left++
		default:
			if pods = append(pods, *p); !p.Marked() {
				marked++
			}
		}
	}
	return pods, left
}

// Unmark implements activities.StorageCluster.
func (c *cluster) Unmark(
	ctx context.Context, in activities.Unmarking, beat func(activities.Marked),
) (out activities.Marked, err error) {
	s, err := c.look(ctx, c.reader, longhorn.Turns{Held: in.Held})
	if err != nil {
		return out, err
	}
	var pods []storageview.Pod
	spare := s.spare()
	for i := range s.pods {
		if p := &s.pods[i]; p.Marked() && (in.All || !slices.Contains(spare, p)) {
			pods = append(pods, *p)
		}
	}
	out.Done, err = c.kube.UnmarkPods(ctx, c.policy, pods, func(done int) { beat(activities.Marked{Done: done}) })
	out.Left = len(pods) - out.Done
	return out, err
}

// errOfCeph is for what only Ceph is asked for.
var errOfCeph = errors.New("Longhorn has no such thing")

// Life implements activities.StorageCluster.
func (c *cluster) Life(context.Context, activities.Asking, func()) (storage.Life, error) {
	return storage.Life{}, errOfCeph
}

// SetFlag implements activities.StorageCluster.
func (c *cluster) SetFlag(context.Context, ...string) ([]activities.FlagRefusal, error) {
	return nil, errOfCeph
}

// UnsetFlag implements activities.StorageCluster.
func (c *cluster) UnsetFlag(context.Context, ...storage.Host) ([]activities.FlagRefusal, error) {
	return nil, errOfCeph
}
