package hammer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper/test/auditlog"
)

// Judge knows a cluster's OSDs and watches whether its data is whole.
type Judge struct {
	env   []string
	audit string
	osds  []OSD
	// deletions count as evictions do: nobody may delete out of turn.
	deletions bool

	began time.Time
	epoch int // of the first map

	mu    sync.Mutex
	whole []time.Time // when all placement groups were said to be active and clean
	stop  context.CancelFunc
	ended chan struct{}
}

// NewJudge begins to watch. env is that of the lab: LAB_AUDIT_LOG, PATH.
func NewJudge(ctx context.Context, env []string, osds []OSD) (*Judge, error) {
	j := &Judge{env: env, osds: osds, began: time.Now(), ended: make(chan struct{})}
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, auditlog.Variable+"="); ok {
			j.audit = path
		}
	}
	if j.audit == "" {
		return nil, fmt.Errorf("%s is missing from the lab's environment", auditlog.Variable)
	}
	c, err := newConsole(ctx, env)
	if err != nil {
		return nil, err
	}
	m, err := c.osdMap(0)
	if err != nil {
		return nil, err
	}
	c.close()
	j.epoch = m.Epoch
	ctx, stop := context.WithCancel(ctx)
	j.stop = stop
	return j, j.watchData(ctx)
}

// dataEvery is how often it is asked whether all data is whole. That may be so for half a second only, from the
// manager's report that lets the next OSD go until the map says that it has gone; a `ceph` for each question would miss
// it on a busy machine.
const dataEvery = 50 * time.Millisecond

// watchData asks all the time whether all data is whole.
func (j *Judge) watchData(ctx context.Context) error {
	c, err := newConsole(ctx, j.env)
	if err != nil {
		return err
	}
	go func() {
		defer close(j.ended)
		defer c.close()
		for ctx.Err() == nil {
			var stat pgStat
			if err := c.ask(&stat, "pg stat"); err == nil && stat.allWhole() {
				j.mu.Lock()
				j.whole = append(j.whole, time.Now())
				j.mu.Unlock()
			}
			time.Sleep(dataEvery)
		}
	}()
	return nil
}

// pgStat is the answer to "pg stat".
type pgStat struct {
	Summary struct {
		States []struct{ Name string } `json:"num_pg_by_state"`
	} `json:"pg_summary"`
}

func (s pgStat) allWhole() bool {
	states := s.Summary.States
	return len(states) > 0 && !slices.ContainsFunc(states,
		func(s struct{ Name string }) bool { return !strings.HasPrefix(s.Name, "active+clean") })
}

// CountDeletions has the judge count deletions beside evictions. Where they are not guarded it would count what
// Deployments do, which nobody keeps from it.
func (j *Judge) CountDeletions() { j.deletions = true }

// Close ends the watching.
func (j *Judge) Close() {
	j.stop()
	<-j.ended
}

// Verdict judges what happened so far. A failure domain is disrupted from the granted eviction of one of its OSDs until
// that OSD is up in a later life and, after that, all data was said to be whole.
func (j *Judge) Verdict(ctx context.Context) (Verdict, error) {
	evictions, failed, err := j.evictions()
	if err != nil {
		return Verdict{}, err
	}
	ups, err := j.ups(ctx)
	if err != nil {
		return Verdict{}, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	v := judge(evictions, ups, j.whole)
	v.Failed = failed
	return v, nil
}

func (j *Judge) evictions() (granted []eviction, failed int, err error) {
	return readEvictions(j.audit, j.began, j.osds, j.deletions)
}

type osdMap struct {
	Epoch    int
	Modified string
	OSDs     []struct {
		OSD    int
		Up     int
		UpFrom int `json:"up_from"`
	} `json:"osds"`
}

// osdMap reads Ceph's map of an epoch; 0: the present one.
func (c *console) osdMap(epoch int) (m osdMap, err error) {
	question := "osd dump"
	if epoch > 0 {
		question = fmt.Sprintf("osd dump %d", epoch)
	}
	return m, c.ask(&m, question)
}

// ups are the times at which each OSD came up, from all maps since the judge began.
func (j *Judge) ups(ctx context.Context) (map[int][]time.Time, error) {
	c, err := newConsole(ctx, j.env)
	if err != nil {
		return nil, err
	}
	defer c.close()
	last, err := c.osdMap(0)
	if err != nil {
		return nil, err
	}
	out := map[int][]time.Time{}
	for epoch := j.epoch + 1; epoch <= last.Epoch; epoch++ {
		m, err := c.osdMap(epoch)
		if err != nil {
			return nil, err
		}
		when, err := time.Parse("2006-01-02T15:04:05.999999-0700", m.Modified)
		if err != nil {
			return nil, err
		}
		for _, o := range m.OSDs {
			if o.UpFrom == epoch {
				out[o.OSD] = append(out[o.OSD], when)
			}
		}
	}
	return out, nil
}
