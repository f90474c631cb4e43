package cephosd

import (
	"context"
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockkeeper/lockkeeper/activities"
	cephv1alpha1 "github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph/cephcluster"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/input"
	"github.com/lockkeeper/lockkeeper/internal/kube"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// cephOSD is the set of a CephOSD.
type cephOSD struct {
	*OSDSets
	ref activities.OSDSetRef
}

// object reads the CephOSD. Unstructured, since its template's hash is over what people wrote. found is false if there
// is none.
func (c cephOSD) object(ctx context.Context) (u *unstructured.Unstructured, found bool, err error) {
	u = &unstructured.Unstructured{}
	u.SetGroupVersionKind(cephv1alpha1.GroupVersion.WithKind(cephv1alpha1.Kind))
	err = c.api.Get(ctx, client.ObjectKey{Namespace: c.ref.Namespace, Name: c.ref.Name}, u)
	return u, err == nil, client.IgnoreNotFound(err)
}

func (c cephOSD) spec(ctx context.Context) (set podspec.Set, found bool, err error) {
	u, found, err := c.object(ctx)
	if err != nil || !found {
		return podspec.Set{}, false, err
	}
	set, err = podspec.Read(u.Object)
	return set, err == nil, err
}

func (c cephOSD) pods(ctx context.Context) ([]*corev1.Pod, error) {
	return kube.CephOSDPods(ctx, c.typed, c.ref.Namespace, c.ref.Name)
}

// state is all that is known of the set at one moment.
type state struct {
	podspec.Set
	podspec.Classified
	pods    []*corev1.Pod
	desired []podspec.OSD
	refused []*input.Error // hard: nothing may be touched
	unknown []*input.Error // hosts that are no nodes
	nodes   podspec.Nodes
	cluster storage.ClusterKey
	ceph    cephcluster.OSDs
	ids     map[string]int // of OSDs, by key, as far as they are known
	byID    map[int]cephcluster.OSD
	lone    bool // every OSD that Ceph relies on has been found among the pods
}

// look reads everything that a survey is made of.
func (c cephOSD) look(ctx context.Context, set podspec.Set, out *activities.Survey) (*state, error) {
	s, err := c.lookAtKubernetes(ctx, set, out)
	if err != nil || len(s.refused) > 0 {
		return s, err
	}
	return s, c.lookAtCeph(ctx, s, out)
}

func (c cephOSD) lookAtKubernetes(ctx context.Context, set podspec.Set, out *activities.Survey) (*state, error) {
	s := &state{Set: set}
	s.desired, s.refused = set.Desired()
	cluster, wrong, err := c.policy(ctx, set.Namespace, set.Spec.Policy)
	if err != nil {
		return nil, err
	}
	if wrong != nil {
		s.refused = append(s.refused, wrong)
	}
	out.Cluster, s.cluster = cluster, cluster
	if s.nodes, err = c.nodes(ctx); err != nil {
		return nil, err
	}
	s.unknown = set.UnknownHosts(sets.KeySet(s.nodes))
	if s.pods, err = c.pods(ctx); err != nil {
		return nil, err
	}
	s.Classified = set.Classify(s.desired, s.pods)
	return s, nil
}

func (c cephOSD) lookAtCeph(ctx context.Context, s *state, out *activities.Survey) (err error) {
	labelled := true
	for _, p := range s.pods {
		labelled = labelled && podspec.Known(p).ID != nil
	}
	if s.ceph, err = c.ceph.OSDs(ctx, out.Cluster, !labelled || len(s.Missing) > 0); err != nil {
		return err
	}
	if out.Unavailable = s.ceph.Unavailable; out.Unavailable != "" {
		return nil
	}
	s.identify(s.pods)
	if wrong := wrongDomain("spec.updateDomain", string(s.Domain()), s.ceph.Types); wrong != nil {
		s.refused = append(s.refused, wrong)
	}
	return nil
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
		o, is := s.Identified[p.Name]
		if !is {
			o = podspec.OSD{Host: p.Annotations[podspec.HostAnnotation], Data: p.Annotations[podspec.DataAnnotation]}
		}
		if k := podspec.Known(p); k.ID != nil {
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
		if id, ok := byPod[podspec.PodName(o)]; ok {
			claim(o.Key(), id)
		} else if id, ok := byStore[o.Key()]; ok {
			claim(o.Key(), id)
		} else if id, ok := s.adopted(o); ok {
			claim(o.Key(), id)
		}
	}
	for _, o := range s.desired { // the only OSD of its host can be told from no other
		if _, known := s.ids[o.Key()]; !known && wanted[o.Host] == 1 && len(onHost[o.Host]) == 1 &&
			!claimed[onHost[o.Host][0]] {
			claim(o.Key(), onHost[o.Host][0])
		}
	}
	s.lone = true
	for _, o := range s.ceph.OSDs {
		s.lone = s.lone && (claimed[o.ID] || !o.Serving)
	}
}

// adopted is the OSD that last started in a pod of the original operator's which is gone, so that its successor has a
// number before it starts. Until every pod has one no budget can say which failure domain may go.
func (s *state) adopted(o podspec.OSD) (id int, known bool) {
	for _, x := range s.ceph.OSDs {
		if x.Pod != "" && x.Host == o.Host && podspec.MayBeNamed(x.Pod, o) {
			if known {
				return 0, false // it is not clear which of them
			}
			id, known = x.ID, true
		}
	}
	return id, known
}

// now is the set at this moment, for a change that was decided a moment ago.
func (c cephOSD) now(ctx context.Context) (*state, error) {
	set, found, err := c.spec(ctx)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, errMoved
	}
	var seen activities.Survey
	s, err := c.look(ctx, set, &seen)
	switch {
	case err != nil:
		return nil, err
	case len(s.refused) > 0:
		return nil, errMoved
	case seen.Unavailable != "":
		return nil, errors.New(seen.Unavailable)
	}
	return s, nil
}

// UpFromAnnotation on a pod is the epoch since which its OSD was up before the pod was made: the OSD is up again when
// Ceph tells of a later one. Without it a map that has not noticed yet would be taken for a start.
const UpFromAnnotation = "lockkeeper.io/up-from-before"

func upFromBefore(p *corev1.Pod) int64 {
	epoch, err := strconv.ParseInt(p.Annotations[UpFromAnnotation], 10, 64)
	if err != nil {
		return -1
	}
	return epoch
}
