package hammer

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Judge knows a cluster's OSDs and watches whether its data is whole.
type Judge struct {
	env   []string
	audit string
	zones map[int]string // of each OSD

	began time.Time
	epoch int // of the first map

	mu    sync.Mutex
	whole []time.Time // when all placement groups were said to be active and clean
	stop  context.CancelFunc
	ended chan struct{}
}

// NewJudge begins to watch. env is that of the lab: LAB_AUDIT_LOG, CEPH_CONF, PATH. zones says where each OSD is.
func NewJudge(ctx context.Context, env []string, zones map[int]string) (*Judge, error) {
	j := &Judge{env: env, zones: zones, began: time.Now(), ended: make(chan struct{})}
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "LAB_AUDIT_LOG="); ok {
			j.audit = path
		}
	}
	if j.audit == "" {
		return nil, fmt.Errorf("LAB_AUDIT_LOG is missing from the lab's environment")
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

// watchData asks five times a second whether all data is whole.
func (j *Judge) watchData(ctx context.Context) error {
	c, err := newConsole(ctx, j.env)
	if err != nil {
		return err
	}
	go func() {
		defer close(j.ended)
		for ctx.Err() == nil {
			var stat struct {
				Summary struct {
					States []struct{ Name string } `json:"num_pg_by_state"`
				} `json:"pg_summary"`
			}
			// While the mons have no quorum it waits, and afterwards it may wait for ever.
			hung := time.AfterFunc(3*time.Second, c.kill)
			err := c.ask(&stat, "pg stat")
			if !hung.Stop() || err != nil {
				c.kill()
				c.close()
				if c, err = newConsole(ctx, j.env); err != nil {
					return
				}
				continue
			}
			states := stat.Summary.States
			if len(states) > 0 && !slices.ContainsFunc(states, func(s struct{ Name string }) bool { return !strings.HasPrefix(s.Name, "active+clean") }) {
				j.mu.Lock()
				j.whole = append(j.whole, time.Now())
				j.mu.Unlock()
			}
			time.Sleep(200 * time.Millisecond)
		}
		c.close()
	}()
	return nil
}

// Verdict is what the judge found.
type Verdict struct {
	Evictions    int // granted, of OSDs' pods; whoever asks again for one that goes already is granted that, too
	DomainsMost  int // failure domains that were disrupted at the same moment
	Failed       int // evictions that were answered with 500, since two budgets were over the pod
	Samples      int // how often all data was seen to be whole
	Disturbances []string
}

// eviction is one that was granted.
type eviction struct {
	at   time.Time
	osd  int
	zone string
	who  string
}

// Close ends the watching.
func (j *Judge) Close() {
	j.stop()
	<-j.ended
}

// Verdict judges what happened so far. A failure domain is disrupted from the granted eviction of one of its OSDs until that OSD
// is up in a later life and, after that, all data was said to be whole.
func (j *Judge) Verdict(ctx context.Context) (Verdict, error) {
	evictions, failed, err := j.evictions()
	if err != nil {
		return Verdict{}, err
	}
	ups, err := j.ups(ctx)
	if err != nil {
		return Verdict{}, err
	}
	v := Verdict{Evictions: len(evictions), Failed: failed}
	j.mu.Lock()
	v.Samples = len(j.whole)
	j.mu.Unlock()
	until := make([]time.Time, len(evictions))
	for i, e := range evictions {
		until[i] = j.wholeAfter(upAfter(ups[e.osd], e.at))
	}
	for i, e := range evictions {
		zones := map[string]bool{e.zone: true}
		for k, earlier := range evictions[:i] {
			if until[k].After(e.at) && !zones[earlier.zone] {
				zones[earlier.zone] = true
				if len(v.Disturbances) < 10 {
					v.Disturbances = append(v.Disturbances, fmt.Sprintf("%s osd.%d (%s) evicted by %s, while osd.%d (%s), evicted at %s, was up at %s and whole at %s",
						e.at.Format("15:04:05.000"), e.osd, e.zone, e.who, earlier.osd, earlier.zone, earlier.at.Format("15:04:05.000"),
						upAfter(ups[earlier.osd], earlier.at).Format("15:04:05.000"), until[k].Format("15:04:05.000")))
				}
			}
		}
		v.DomainsMost = max(v.DomainsMost, len(zones))
	}
	return v, nil
}

// never is later than everything.
var never = time.Unix(1<<40, 0)

func upAfter(ups []time.Time, t time.Time) time.Time {
	for _, up := range ups {
		if up.After(t) {
			return up
		}
	}
	return never
}

func (j *Judge) wholeAfter(t time.Time) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	i, _ := slices.BinarySearchFunc(j.whole, t, func(a, b time.Time) int { return a.Compare(b) })
	if i == len(j.whole) {
		return never
	}
	return j.whole[i]
}

// evictions reads the audit log: who asked for the eviction of which OSD's pod, and was granted it.
func (j *Judge) evictions() (granted []eviction, failed int, err error) {
	f, err := os.Open(j.audit)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	seen := map[string]bool{} // pods; no two ever have the same name
	for lines.Scan() {
		var e struct {
			At        time.Time `json:"stageTimestamp"`
			UserAgent string    `json:"userAgent"`
			ObjectRef struct{ Name, Subresource string }
			Status    struct {
				Code    int
				Message string
			} `json:"responseStatus"`
			URI string `json:"requestURI"`
		}
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.ObjectRef.Subresource != "eviction" || e.At.Before(j.began) || strings.Contains(e.URI, "dryRun") {
			continue
		}
		var id int
		if _, err := fmt.Sscanf(e.ObjectRef.Name, "rook-ceph-osd-%d-", &id); err != nil {
			continue
		}
		switch e.Status.Code {
		case 201:
			if seen[e.ObjectRef.Name] {
				continue
			}
			seen[e.ObjectRef.Name] = true
			granted = append(granted, eviction{at: e.At, osd: id, zone: j.zones[id], who: e.UserAgent})
		case 500:
			// One that its client gave up in the midst of it is a 500 in this log, too.
			if strings.Contains(e.Status.Message, "more than one PodDisruptionBudget") {
				failed++
			}
		}
	}
	slices.SortFunc(granted, func(a, b eviction) int { return a.at.Compare(b.at) })
	return granted, failed, lines.Err()
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
