package fleet

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/osdpod"
	"github.com/lockkeeper/lockkeeper/internal/rollout"
	"github.com/lockkeeper/lockkeeper/internal/windows"
)

// cephOSD is the fleet of a CephOSD.
type cephOSD struct {
	*Fleets
	ref activities.FleetRef
}

// spec reads the CephOSD. Unstructured, since its template's hash is over what people wrote. found is false if there is none.
func (c cephOSD) spec(ctx context.Context) (set osdpod.Set, found bool, err error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(cephv1alpha1.GroupVersion.WithKind(cephv1alpha1.Kind))
	if err := c.api.Get(ctx, client.ObjectKey{Namespace: c.ref.Namespace, Name: c.ref.Name}, u); err != nil {
		return osdpod.Set{}, false, client.IgnoreNotFound(err)
	}
	set, err = osdpod.Read(u.Object)
	return set, err == nil, err
}

func (c cephOSD) pods(ctx context.Context) ([]*corev1.Pod, error) {
	list, err := c.typed.CoreV1().Pods(c.ref.Namespace).List(ctx, metav1.ListOptions{LabelSelector: osdpod.OwnerLabel + "=" + osdpod.Owner(c.ref.Name)})
	if err != nil {
		return nil, err
	}
	out := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// state is all that is known of the fleet at one moment.
type state struct {
	osdpod.Set
	osdpod.Classified
	desired []osdpod.OSD
	refused []*input.Error // hard: nothing may be touched
	unknown []*input.Error // hosts that are no nodes
	hosts   map[string]bool
	away    map[string]string
	ceph    cephcluster.OSDs
	ids     map[string]int // of OSDs, by key, as far as they are known
	byID    map[int]cephcluster.OSD
	lone    bool // every OSD that Ceph relies on has been found among the pods
}

// look reads everything that a survey is made of.
func (c cephOSD) look(ctx context.Context, set osdpod.Set, out *activities.Survey) (*state, error) {
	s := &state{Set: set}
	s.desired, s.refused = set.Desired()
	cluster, wrong, err := c.policy(ctx, set.Namespace, set.Spec.Policy)
	if err != nil {
		return nil, err
	}
	if wrong != nil {
		s.refused = append(s.refused, wrong)
	}
	out.Cluster = cluster
	if s.hosts, s.away, err = c.nodes(ctx); err != nil {
		return nil, err
	}
	s.unknown = set.UnknownHosts(sets.KeySet(s.hosts))
	pods, err := c.pods(ctx)
	if err != nil {
		return nil, err
	}
	s.Classified = set.Classify(s.desired, pods)
	if len(s.refused) > 0 {
		return s, nil
	}
	labelled := true
	for _, p := range pods {
		labelled = labelled && osdpod.Known(p).ID != nil
	}
	if s.ceph, err = c.ceph.OSDs(ctx, cluster, !labelled || len(s.Missing) > 0); err != nil {
		return nil, err
	}
	if out.Unavailable = s.ceph.Unavailable; out.Unavailable == "" {
		s.identify(pods)
	}
	return s, nil
}

// identify finds the number of each OSD: by the label of its pod, or by what the OSD said of itself.
func (s *state) identify(pods []*corev1.Pod) {
	s.ids, s.byID = map[string]int{}, map[int]cephcluster.OSD{}
	byPod, byStore := map[string]int{}, map[string]int{}
	onHost := map[string][]int{}
	for _, o := range s.ceph.OSDs {
		s.byID[o.ID] = o
		byStore[o.Host+":"+o.Data] = o.ID
		if o.Pod != "" {
			byPod[o.Pod] = o.ID
		} else if o.Host != "" {
			onHost[o.Host] = append(onHost[o.Host], o.ID)
		}
	}
	claimed := map[int]bool{}
	claim := func(key string, id int) { s.ids[key], claimed[id] = id, true }
	for _, p := range pods {
		o := osdpod.OSD{Host: p.Annotations[osdpod.HostAnnotation], Data: p.Annotations[osdpod.DataAnnotation]}
		if k := osdpod.Known(p); k.ID != nil {
			claim(o.Key(), *k.ID)
		} else if id, ok := byPod[p.Name]; ok {
			claim(o.Key(), id)
		} else if ids := onHost[p.Name]; len(ids) == 1 { // without NODE_NAME an OSD's hostname is its pod's
			claim(o.Key(), ids[0])
		}
	}
	wanted := map[string]int{}
	for _, o := range s.desired {
		wanted[o.Host]++
		if _, known := s.ids[o.Key()]; known {
			continue
		}
		if id, ok := byPod[osdpod.PodName(o)]; ok {
			claim(o.Key(), id)
		} else if id, ok := byStore[o.Key()]; ok {
			claim(o.Key(), id)
		} else if id, ok := s.adopted(o); ok {
			claim(o.Key(), id)
		}
	}
	for _, o := range s.desired { // the only OSD of its host can be told from no other
		if _, known := s.ids[o.Key()]; !known && wanted[o.Host] == 1 && len(onHost[o.Host]) == 1 && !claimed[onHost[o.Host][0]] {
			claim(o.Key(), onHost[o.Host][0])
		}
	}
	s.lone = true
	for _, o := range s.ceph.OSDs {
		s.lone = s.lone && (claimed[o.ID] || !o.Serving)
	}
}

// adopted is the OSD that last started in a pod of the original operator's which is gone, so that its successor has a number
// before it starts. Until every pod has one no budget can say which failure domain may go.
func (s *state) adopted(o osdpod.OSD) (id int, known bool) {
	for _, x := range s.ceph.OSDs {
		if x.Pod != "" && x.Host == o.Host && osdpod.MayBeNamed(x.Pod, o) {
			if known {
				return 0, false // it is not clear which of them
			}
			id, known = x.ID, true
		}
	}
	return id, known
}

func (c cephOSD) survey(ctx context.Context, in activities.SurveyInput) (activities.Survey, error) {
	set, found, err := c.spec(ctx)
	if err != nil || !found {
		return activities.Survey{}, err
	}
	out := activities.Survey{Found: true, Deleting: set.DeletionTimestamp != nil, Generation: set.Generation, Template: set.Hash, Rules: rulesOf(set)}
	s, err := c.look(ctx, set, &out)
	if err != nil {
		return activities.Survey{}, err
	}
	opened, wrong := set.Windows()
	if wrong == nil {
		open, change := windows.Open(opened, time.Now())
		out.Rules.Shut, out.Rules.WindowChanges = !open, change
	}
	out.Counts.Invalid, out.Counts.Terminating, out.Counts.Superfluous = len(s.Invalid), len(s.Terminating), len(s.Superfluous)
	for _, p := range s.Foreign {
		out.Foreign = append(out.Foreign, clip(p.Name+": "+p.Why))
	}
	out.Foreign = out.Foreign[:min(len(out.Foreign), mostForeign)]
	if out.Refused = errorsOf(s.refused); len(out.Refused) > 0 || out.Unavailable != "" {
		return out, nil
	}
	out.Warned = errorsOf(s.unknown)
	decision := rollout.Input{
		OSDs: s.osds(), DomainType: s.ceph.DomainType, MaxParallel: int(set.Spec.MaxParallel), Skip: in.Skip,
		Canary: set.Spec.Canary != nil && in.CanaryOf != set.Hash,
	}
	out.Next, out.Counts.Counts, out.Counted = rollout.Next(decision), rollout.Count(decision), true
	for _, o := range decision.OSDs {
		if o.Key == in.Canary && o.Serves {
			out.CanaryLife = fmt.Sprint(s.byID[s.ids[o.Key]].UpFrom)
		}
	}
	for _, p := range s.Invalid {
		if !p.Serving {
			out.Discard = append(out.Discard, p.Name)
		}
	}
	out.Unnoted = len(s.unnoted(time.Time{}))
	return out, c.judgeSuperfluous(ctx, s, &out)
}

const (
	mostForeign     = 16
	mostSuperfluous = 16
)

// judgeSuperfluous asks Ceph about OSDs that left the spec.
func (c cephOSD) judgeSuperfluous(ctx context.Context, s *state, out *activities.Survey) error {
	for _, p := range s.Superfluous[:min(len(s.Superfluous), mostSuperfluous)] {
		key := p.OSD.Key()
		id, known := s.ids[key]
		switch {
		case p.Pod.Annotations[RemoveAnnotation] == "true":
			out.Removable = append(out.Removable, p.Name)
			continue
		case !known:
			out.Superfluous = append(out.Superfluous, activities.Superfluous{Key: key, Why: "which OSD it is is not known; annotate its pod with " + RemoveAnnotation + "=true if nobody needs it"})
			continue
		}
		a, err := c.ceph.SafeToDestroy(ctx, out.Cluster, []int{id})
		if err != nil {
			return err
		}
		if a.OK {
			out.Removable = append(out.Removable, p.Name)
			continue
		}
		out.Superfluous = append(out.Superfluous, activities.Superfluous{Key: key, Why: fmt.Sprintf("%s; `ceph osd out %d` moves its data", a.Reason, id)})
	}
	return nil
}

// RemoveAnnotation on a pod says that it may go although its OSD's data is needed: a person's word.
const RemoveAnnotation = osdpod.RemoveAnnotation

// osds is the fleet as a decision sees it.
func (s *state) osds() []rollout.OSD {
	var out []rollout.OSD
	seen := map[string]bool{}
	add := func(o osdpod.OSD, st rollout.State, p *osdpod.Pod) {
		r := s.osd(o, p)
		r.State = st
		seen[o.Key()] = true
		out = append(out, r)
	}
	for _, group := range []struct {
		pods  []osdpod.Pod
		state rollout.State
	}{{s.UpToDate, rollout.UpToDate}, {s.OutOfDate, rollout.OutOfDate}, {s.Ready, rollout.Ready}, {s.Unready, rollout.Unready}} {
		for i := range group.pods {
			add(group.pods[i].OSD, group.state, &group.pods[i])
		}
	}
	for i := range s.Invalid { // to take it away takes down its OSD, so it goes like one that is out of date
		if p := &s.Invalid[i]; p.Serving && !seen[p.OSD.Key()] {
			add(p.OSD, rollout.OutOfDate, p)
		}
	}
	missing := map[string]bool{}
	for _, o := range s.Missing {
		missing[o.Key()] = true
	}
	for _, o := range s.desired {
		busy := s.Busy[o.Key()]
		switch {
		case seen[o.Key()]:
		case s.creatable(o, missing):
			add(o, rollout.Missing, nil)
		default: // its pod is on its way out, its node is being emptied or is none, or somebody else has its device
			add(o, rollout.Unready, nil)
			if last := &out[len(out)-1]; last.Away == "" {
				last.Away = cmp.Or(busy, s.away[o.Host])
			}
		}
	}
	return out
}

// creatable tells whether a pod for an OSD may be made now. Not on a node that somebody empties: a pod that tolerates the
// cordon, as those of OSDs do, would start there at once, and the drain would never end.
func (s *state) creatable(o osdpod.OSD, missing map[string]bool) bool {
	return missing[o.Key()] && s.hosts[o.Host] && s.away[o.Host] == "" && s.Busy[o.Key()] == ""
}

// osd is one OSD, but for its state. p is its pod, nil for none.
func (s *state) osd(o osdpod.OSD, p *osdpod.Pod) rollout.OSD {
	r := rollout.OSD{Key: o.Key(), Host: o.Host}
	if !s.hosts[o.Host] {
		r.Away = "its host " + o.Host + " is no node"
	}
	id, known := s.ids[o.Key()]
	in := s.byID[id]
	if known {
		r.Name, r.Domain = osdName(id), in.Domain
		r.Unit = unit(string(s.Domain()), int(s.Spec.MaxParallel), o.Host, in)
	}
	if p == nil {
		return r
	}
	r.Excused = p.Overridden
	r.Serves = p.Ready && known && in.Up && in.UpFrom > upFromBefore(p.Pod)
	switch {
	case r.Serves:
		r.Away = ""
	case r.Away != "":
	case s.away[o.Host] != "":
		r.Away = s.away[o.Host]
	case !known && !s.lone:
		r.Away = "which OSD it is is not known: set POD_NAME in the template's environment, or label its pod " + osdpod.IDLabel
	}
	return r
}

func rulesOf(set osdpod.Set) activities.FleetRules {
	r := activities.FleetRules{Paused: set.Spec.Paused, ProgressDeadline: 10 * time.Minute}
	if d := set.Spec.ProgressDeadline; d != nil {
		r.ProgressDeadline = d.Duration
	}
	if d := set.Spec.PauseBetween; d != nil {
		r.PauseBetween = d.Duration
	}
	if c := set.Spec.Canary; c != nil {
		r.Canary, r.Approval = true, c.Approval
		if c.Soak != nil {
			r.Soak = c.Soak.Duration
		}
	}
	return r
}

func errorsOf(all []*input.Error) (out []input.Error) {
	for _, e := range all {
		out = append(out, *e)
	}
	return out
}

// clip keeps a text for people short enough for a status.
func clip(s string) string { return clipTo(s, 250) }

func clipTo(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return strings.TrimSpace(s)
}

func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
