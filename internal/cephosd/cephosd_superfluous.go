package cephosd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// RemoveAnnotation on a pod says that it may go although its OSD's data is needed: a person's word.
const RemoveAnnotation = podspec.RemoveAnnotation

// Bounds of a message, and of a question to Ceph. Every superfluous OSD is asked about at every look, so that none
// which has to stay keeps another from its turn; of those that may go, what does not fit goes next time.
const (
	mostSuperfluous = 16
	mostRemovable   = 256
	askedTogether   = 128
)

// judgeSuperfluous asks Ceph about OSDs that left the spec.
func (c cephOSD) judgeSuperfluous(ctx context.Context, s *state, out *activities.Survey) error {
	safe, err := c.safe(ctx, out.Cluster, s, s.Superfluous)
	if err != nil {
		return err
	}
	var forced, spared []string
	for i := range s.Superfluous {
		p := &s.Superfluous[i]
		switch why := s.needed(p, safe); {
		case isForced(p):
			forced = append(forced, p.Name)
		case why == "":
			spared = append(spared, p.Name)
		case len(out.Superfluous) < mostSuperfluous:
			out.Superfluous = append(out.Superfluous, activities.Superfluous{Key: p.OSD.Key(), Why: why})
		}
	}
	out.Removable = slices.Concat(forced, spared)
	if len(out.Superfluous) > 0 || len(out.Removable) > mostRemovable {
		lookAgain(out, lookAgainLate)
	}
	out.Removable = out.Removable[:min(len(out.Removable), mostRemovable)]
	return nil
}

// needed says why the pod of a superfluous OSD stays; "": nobody needs it.
func (s *state) needed(p *podspec.Pod, safe map[int]storage.Answer) string {
	id, known := s.ids[p.OSD.Key()]
	switch a := safe[id]; {
	case isForced(p):
		return ""
	case !known:
		return "which OSD it is is not known; annotate its pod with " + RemoveAnnotation + "=true if nobody needs it"
	case !a.OK:
		return fmt.Sprintf("%s; `ceph osd out %d` moves its data", a.Reason, id)
	}
	return ""
}

func isForced(p *podspec.Pod) bool { return p.Pod.Annotations[RemoveAnnotation] == "true" }

// safe asks Ceph about those on which no person has decided, many at a time.
func (c cephOSD) safe(
	ctx context.Context, cluster storage.ClusterKey, s *state, pods []podspec.Pod,
) (map[int]storage.Answer, error) {
	var ids []int
	for i := range pods {
		if id, known := s.ids[pods[i].OSD.Key()]; known && !isForced(&pods[i]) {
			ids = append(ids, id)
		}
	}
	out := make(map[int]storage.Answer, len(ids))
	for some := range slices.Chunk(ids, askedTogether) {
		answers, err := c.ceph.SafeToDestroy(ctx, cluster, some)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, answers)
	}
	return out, nil
}

func (c cephOSD) remove(ctx context.Context, names []string) error {
	s, err := c.now(ctx)
	if errors.Is(err, errMoved) {
		return nil
	}
	if err != nil {
		return err
	}
	cluster, _, err := c.policy(ctx, s.Namespace, s.Spec.Policy)
	if err != nil {
		return err
	}
	wanted := sets.New(names...)
	pods := slices.DeleteFunc(slices.Clone(s.Superfluous), func(p podspec.Pod) bool { return !wanted.Has(p.Name) })
	safe, err := c.safe(ctx, cluster, s, pods)
	if err != nil {
		return err
	}
	for i := range pods {
		if s.needed(&pods[i], safe) != "" {
			continue
		}
		if err := c.delete(ctx, pods[i].Pod); err != nil {
			return err
		}
	}
	return nil
}
