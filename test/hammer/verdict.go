package hammer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/test/auditlog"
)

// Verdict is what the judge found.
type Verdict struct {
	Evictions    int // granted, of OSDs' pods; whoever asks again for one that goes already is granted that, too
	DomainsMost  int // failure domains that were disrupted at the same moment
	Failed       int // evictions that were answered with 500, since two budgets were over the pod
	Samples      int // how often all data was seen to be whole
	Disturbances []string
}

// OSD is one of those that are hammered.
type OSD struct {
	ID   int
	Zone string
	pods string // what the names of its pods begin with, one life after the other
}

// NewOSD is the OSD of a pod: of a Deployment of Rook's, or a bare one.
func NewOSD(id int, zone, pod string) OSD {
	if of := fmt.Sprintf("rook-ceph-osd-%d-", id); strings.HasPrefix(pod, of) {
		return OSD{id, zone, of}
	}
	return OSD{id, zone, pod[:strings.LastIndex(pod, "-")+1]}
}

// eviction is one that was granted.
type eviction struct {
	at   time.Time
	osd  int
	zone string
	who  string
}

// judge takes the granted evictions, the times at which each OSD came up, and those at which all data was seen to be
// whole, all of them in order. A failure domain is disrupted from an eviction until that OSD is up in a later life and,
// after that, the data is whole.
func judge(evictions []eviction, ups map[int][]time.Time, whole []time.Time) Verdict {
	v := Verdict{Evictions: len(evictions), Samples: len(whole)}
	until := make([]time.Time, len(evictions))
	for i, e := range evictions {
		until[i] = firstAfter(whole, firstAfter(ups[e.osd], e.at))
	}
	for i, e := range evictions {
		zones := map[string]bool{e.zone: true}
		for k, earlier := range evictions[:i] {
			if !until[k].After(e.at) || zones[earlier.zone] {
				continue
			}
			zones[earlier.zone] = true
			if len(v.Disturbances) < 10 {
				v.Disturbances = append(v.Disturbances,
					fmt.Sprintf("%s osd.%d (%s) evicted by %s, while osd.%d (%s), evicted at %s, was up at %s and whole at %s",
						clock(e.at), e.osd, e.zone, e.who, earlier.osd, earlier.zone, clock(earlier.at),
						clock(firstAfter(ups[earlier.osd], earlier.at)), clock(until[k])))
			}
		}
		v.DomainsMost = max(v.DomainsMost, len(zones))
	}
	return v
}

// never is later than everything.
var never = time.Unix(1<<40, 0)

// firstAfter is the first of times in order that is later than t.
func firstAfter(times []time.Time, t time.Time) time.Time {
	if i := slices.IndexFunc(times, func(at time.Time) bool { return at.After(t) }); i >= 0 {
		return times[i]
	}
	return never
}

func clock(t time.Time) string {
	if t.Equal(never) {
		return "no time"
	}
	return t.Format("15:04:05.000")
}

// readEvictions reads an audit log: who asked since then for the eviction of which OSD's pod, or with deletions for its
// deletion, and was granted it. A pod that was evicted is deleted by its kubelet when it has ended.
func readEvictions(
	log string, since time.Time, osds []OSD, deletions bool,
) (granted []eviction, failed int, err error) {
	seen := map[string]bool{} // pods; no two ever have the same name
	err = auditlog.ReadFiles(log, func(e auditlog.Event) {
		about := e.ObjectRef
		if e.At.Before(since) || about.Resource != "pods" || e.DryRun() ||
			about.Subresource != "eviction" && (!deletions || e.Verb != "delete" || about.Subresource != "") {
			return
		}
		i := slices.IndexFunc(osds, func(o OSD) bool { return strings.HasPrefix(about.Name, o.pods) })
		if i < 0 {
			return
		}
		switch e.Response.Code {
		case 200, 201:
			if !seen[about.Name] {
				seen[about.Name] = true
				granted = append(granted, eviction{at: e.At, osd: osds[i].ID, zone: osds[i].Zone, who: e.UserAgent})
			}
		case 500:
			// One that its client gave up in the midst of it is a 500 in this log, too.
			if strings.Contains(e.Response.Message, "more than one PodDisruptionBudget") {
				failed++
			}
		}
	})
	slices.SortFunc(granted, func(a, b eviction) int { return a.at.Compare(b.at) })
	return granted, failed, err
}
