package cephosd

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper/activities"
	"github.com/lockkeeper/lockkeeper/internal/cephosd/podspec"
)

// suspect is an OSD that keeps a rollout halted, as far as Kubernetes can tell; zero if none is known.
type suspect struct {
	osd string // its name, or its key; "" if it may be any of several
	why string
}

func (s suspect) String() string {
	if s.osd == "" {
		return s.why
	}
	return clip(s.osd + ": " + s.why)
}

// excuse is the command with which a person says not to wait for it.
func (s suspect) excuse(workflow string) string {
	return fmt.Sprintf("lockkeeper skip %s %s", workflow, cmp.Or(s.osd, "OSD"))
}

// cause looks for the first OSD that is not back. A CephOSD that is gone has none.
func (c cephOSD) cause(ctx context.Context, r activities.OSDSetReport) (suspect, error) {
	set, found, err := c.spec(ctx)
	if err != nil || !found {
		return suspect{}, err
	}
	pods, err := c.pods(ctx)
	if err != nil {
		return suspect{}, err
	}
	desired, _ := set.Desired()
	var batch []string
	if r.Batch != nil {
		batch = r.Batch.OSDs
	}
	return suspectOf(set.Classify(desired, pods), batch), nil
}

// candidate is an OSD that may be to blame.
type candidate struct {
	key string
	suspect
}

func blame(p podspec.Pod, why string) candidate {
	c := candidate{p.OSD.Key(), suspect{osd: p.OSD.Key(), why: "pod " + p.Name + why}}
	if id := podspec.Known(p.Pod).ID; id != nil {
		c.osd = osdName(*id)
	}
	return c
}

// suspectOf takes the first OSD of the batch that has no pod that serves; if it cannot be told which are of the batch,
// the first at all. When all pods of the batch are ready it is Ceph that misses one of them.
func suspectOf(c podspec.Classified, batch []string) suspect {
	var away, back []candidate
	for _, p := range c.NotReady {
		away = append(away, blame(p, ": "+podspec.Trouble(p.Pod)))
	}
	for _, p := range c.Terminating {
		away = append(away, blame(p, " is still terminating"))
	}
	for _, o := range c.Missing {
		why := "it has no pod"
		if busy := c.Busy[o.Key()]; busy != "" {
			why += ", since " + busy
		}
		away = append(away, candidate{o.Key(), suspect{o.Key(), why}})
	}
	for _, pods := range [][]podspec.Pod{c.Ready, c.UpToDate} {
		for _, p := range pods {
			if p.Ready {
				back = append(back, blame(p, " is ready, but Ceph does not say that the OSD is up"))
			}
		}
	}
	others := func(x candidate) bool { return !slices.Contains(batch, x.osd) && !slices.Contains(batch, x.key) }
	inBatch, waiting := slices.DeleteFunc(slices.Clone(away), others), slices.DeleteFunc(back, others)
	switch {
	case len(inBatch) > 0:
		return inBatch[0].suspect
	case len(waiting) == 1:
		return waiting[0].suspect
	case len(waiting) > 1:
		return suspect{why: "all of its pods are ready, but Ceph does not say that all of its OSDs are up"}
	case len(away) > 0:
		return away[0].suspect
	}
	return suspect{}
}
