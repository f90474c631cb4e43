package cephosd

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/storage"
	"github.com/lockkeeper/lockkeeper/internal/wish"
)

// waiting is the set of daemons whose pods a controller wants gone, and which the guard of deletions has wait: a
// changed Deployment, `kubectl rollout restart`, an operator. To let one go is to evict it under the lease; what takes
// its place its controller makes. Daemons are known by their names, since their pods change.
type waiting struct {
	*OSDSets
	ref activities.OSDSetRef
}

// look is what was seen of a policy's pods.
type waits struct {
	refuse  *input.Error
	policy  *v1alpha1.MaintenancePolicy
	key     storage.ClusterKey
	objects wish.Objects
	wishes  []kube.StorageWish
	nodes   []corev1.Node
	away    map[string]string // why they are not in service, by name
}

func (w waiting) look(ctx context.Context) (*waits, error) {
	out := &waits{}
	key, wrong, err := w.OSDSets.policy(ctx, w.ref.Namespace, w.ref.Policy)
	if out.key, out.refuse = key, wrong; err != nil || wrong != nil {
		return out, err
	}
	out.policy = &v1alpha1.MaintenancePolicy{}
	if err := w.api.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, out.policy); err != nil {
		return nil, err
	}
	nodes, err := w.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out.nodes, out.away = nodes.Items, kube.OutOfService(nodes.Items)
	if out.objects, err = kube.StorageObjects(ctx, w.typed, w.api, out.policy); err != nil {
		return nil, err
	}
	out.wishes = kube.WishesFor(out.policy, out.objects)
	return out, nil
}

// pods are the living pods of a daemon.
func (s *waits) pods(daemon string) (out []*corev1.Pod) {
	for i := range s.objects.Pods {
		p := &s.objects.Pods[i]
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded &&
			kube.DaemonOf(s.policy, p) == daemon {
			out = append(out, p)
		}
	}
	return out
}

// twins are the pods that are ready beside one that waits to go, by the name of the daemon.
func (s *waits) twins() map[string]string {
	out := map[string]string{}
	for _, x := range s.wishes {
		for _, p := range s.pods(x.Daemon) {
			if p.UID != x.UID && podspec.Trouble(p) == "" {
				out[x.Daemon] = p.Name
			}
		}
	}
	return out
}

// homeless says, by the name of the daemon, why no node would take the pod that is to come in the place of one. A
// DaemonSet decides by itself where its pods run.
func (s *waits) homeless() map[string]string {
	out := map[string]string{}
	for _, x := range s.wishes {
		if o, known := s.owner(x); known && x.Newer && o.ref.Kind != "DaemonSet" {
			out[x.Daemon] = kube.Homeless(&o.template, s.nodes)
		}
	}
	return out
}

func (s *waits) wish(daemon string) (kube.StorageWish, bool) {
	i := slices.IndexFunc(s.wishes, func(w kube.StorageWish) bool { return w.Daemon == daemon })
	if i < 0 {
		return kube.StorageWish{}, false
	}
	return s.wishes[i], true
}

// cluster is what Ceph says.
type cluster struct {
	cephcluster.OSDs
	mons cephcluster.Mons
	byID map[string]cephcluster.OSD
}

// ask asks Ceph, about the mons only where some are concerned.
func (w waiting) ask(
	ctx context.Context, key storage.ClusterKey, mons bool,
) (c cluster, unavailable string, err error) {
	if c.OSDs, err = w.ceph.OSDs(ctx, key, false); err != nil || c.Unavailable != "" {
		return c, c.Unavailable, err
	}
	c.byID = map[string]cephcluster.OSD{}
	for _, o := range c.OSDs.OSDs {
		c.byID[osdName(o.ID)] = o
	}
	if mons {
		c.mons, err = w.ceph.Mons(ctx, key)
	}
	return c, c.mons.Unavailable, err
}

// survey says what goes next: what is broken, then mons one by one, then OSDs, and those of the failure domain that is
// open anyway first. Nothing goes while what went before is not back.
func (w waiting) survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error) {
	s, err := w.look(ctx)
	if err != nil {
		return activities.Survey{}, err
	}
	out := activities.Survey{Found: true, Cluster: s.key, Template: w.ref.Name}
	if s.refuse != nil {
		out.Refused = errorsOf([]*input.Error{s.refuse})
		return out, nil //nolint:nilerr // what is wrong with the policy is an answer
	}
	mode := kube.RestartMode(s.policy)
	if mode == v1alpha1.RestartsObserve && len(in.LetGo) == 0 {
		out.Found = false
		return out, nil
	}
	out.Rules = activities.OSDSetRules{
		ProgressDeadline: activities.DefaultProgressDeadline, Consent: mode == v1alpha1.RestartsApprove,
	}
	if w.ref.ProgressDeadline > 0 {
		out.Rules.ProgressDeadline = w.ref.ProgressDeadline
	}
	switch opened, wrong := kube.RestartWindows(s.policy); {
	case wrong == nil:
		keepTo(&out.Rules, opened)
	case len(in.LetGo) == 0:
		out.Refused = errorsOf([]*input.Error{wrong})
		return out, nil
	default: // what went is awaited first
		out.Rules.Shut = true
	}
	c, unavailable, err := w.ask(ctx, s.key, s.concernsMons(in.LetGo))
	if out.Unavailable = unavailable; err != nil || unavailable != "" {
		return out, err
	}
	d := rollout.Input{DomainType: c.DomainType, Skip: in.Skip}
	if open := s.policy.Status.OpenFailureDomain; open != nil {
		d.First = open.Name
	}
	d.OSDs = s.letGo(in.LetGo, c)
	if mode != v1alpha1.RestartsObserve {
		more, held, err := w.due(ctx, s, c, in.LetGo)
		if err != nil {
			return out, err
		}
		d.OSDs, out.Superfluous = append(d.OSDs, more...), held
	}
	out.Counts.Counts, out.Counted, out.Excused = rollout.Count(d), true, rollout.Excused(d)
	out.Counts.UpToDate += in.Done
	out.Counts.Total += in.Done
	out.Counts.Superfluous = len(out.Superfluous)
	out.Next = rollout.NextWaiting(d, in.Done > 0 || len(in.LetGo) > 0)
	return out, nil
}

func (s *waits) concernsMons(letGo []activities.LetGo) bool {
	return slices.ContainsFunc(s.wishes, func(w kube.StorageWish) bool { return rollout.IsMon(w.Daemon) }) ||
		slices.ContainsFunc(letGo, func(g activities.LetGo) bool { return rollout.IsMon(g.Key) })
}

// letGo are the daemons that went and are awaited.
func (s *waits) letGo(all []activities.LetGo, c cluster) (out []rollout.OSD) {
	for _, g := range all {
		o := rollout.OSD{Key: g.Key, Name: g.Key, Domain: s.domain(g.Key, c), State: rollout.Unready, ForGood: g.ForGood}
		if o.Serves = s.back(g, c) == ""; o.Serves {
			o.State = rollout.Ready
		}
		for _, p := range s.pods(g.Key) {
			if o.Host = kube.PodNode(p); !o.Serves {
				o.Away = s.away[o.Host]
			}
		}
		out = append(out, o)
	}
	return out
}

// back says why a daemon that was let go is not back; "": it is. One that went for good is, as soon as its pod is gone.
func (s *waits) back(g activities.LetGo, c cluster) string {
	there := slices.ContainsFunc(s.objects.Pods, func(p corev1.Pod) bool { return p.UID == types.UID(g.Pod) })
	switch {
	case there:
		return g.Key + " is still stopping"
	case g.ForGood:
		return ""
	}
	pods := s.pods(g.Key)
	if i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return podspec.Trouble(p) == "" }); i < 0 {
		if len(pods) == 0 {
			return g.Key + " has no pod yet"
		}
		return fmt.Sprintf("pod %s is not ready: %s", pods[0].Name, podspec.Trouble(pods[0]))
	}
	if rollout.IsMon(g.Key) {
		m, known := c.mons.Map.Find(strings.TrimPrefix(g.Key, "mon."))
		if !known || !m.Alive || c.mons.Election <= g.Epoch {
			return g.Key + " is not in quorum yet"
		}
		return ""
	}
	if o := c.byID[g.Key]; !o.Up || o.UpFrom <= g.Epoch {
		return g.Key + " is not up in Ceph yet"
	}
	return ""
}

// domain is the failure domain of an OSD, or of the OSDs beside a mon.
func (s *waits) domain(daemon string, c cluster) string {
	if !rollout.IsMon(daemon) {
		return c.byID[daemon].Domain
	}
	for _, p := range s.pods(daemon) {
		for i := range s.objects.Pods {
			if beside := &s.objects.Pods[i]; beside.Spec.NodeName == p.Spec.NodeName {
				if d := c.byID[kube.DaemonOf(s.policy, beside)].Domain; d != "" {
					return d
				}
			}
		}
	}
	return ""
}

// due are the daemons that may go when it is their turn; held those that may not, and why.
func (w waiting) due(
	ctx context.Context, s *waits, c cluster, letGo []activities.LetGo,
) (due []rollout.OSD, held []activities.Superfluous, err error) {
	stay := staying{
		namespace: s.key.Namespace, away: s.away, homeless: s.homeless(), mons: c.mons.Map, twins: s.twins(),
	}
	if stay.destroy, err = w.safeToDestroy(ctx, s, c); err != nil {
		return nil, nil, err
	}
	for _, x := range s.wishes {
		if slices.ContainsFunc(letGo, func(g activities.LetGo) bool { return g.Key == x.Daemon }) {
			continue
		}
		o := rollout.OSD{
			Key: x.Daemon, Name: x.Daemon, Host: x.Node, Domain: s.domain(x.Daemon, c), State: rollout.OutOfDate,
			Pod: string(x.UID), Epoch: c.byID[x.Daemon].UpFrom, ForGood: !x.Newer, Serves: true,
			Up: c.byID[x.Daemon].Up, Unheard: c.byID[x.Daemon].Unheard,
		}
		o.Unit = o.Domain
		if rollout.IsMon(x.Daemon) {
			o.Unit, o.Epoch = "", c.mons.Election
			if o.ForGood {
				o.Domain = "" // it goes when the monmap has it no more: then it is missed by nobody
			}
		}
		if why := stay.why(x, o.Domain); why != "" {
			held = append(held, activities.Superfluous{Key: x.Daemon, Why: why})
			continue
		}
		due = append(due, o)
	}
	return due, held, nil
}

// safeToDestroy asks about the OSDs that are to go for good, and about those for which no failure domain can open.
func (w waiting) safeToDestroy(ctx context.Context, s *waits, c cluster) (map[int]storage.Answer, error) {
	var ids []int
	for _, x := range s.wishes {
		if id := osdID(x.Daemon); id >= 0 && (!x.Newer || c.byID[x.Daemon].Domain == "") {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return w.ceph.SafeToDestroy(ctx, s.key, ids)
}

// osdID is the number of an OSD, or −1.
func osdID(daemon string) int {
	id, err := strconv.Atoi(strings.TrimPrefix(daemon, "osd."))
	if err != nil {
		return -1
	}
	return id
}
