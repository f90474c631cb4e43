// Package rollout decides which OSDs are replaced next, and why. It is pure: somebody else looks at Kubernetes and at
// the storage cluster, asks for the lease, and replaces what was decided.
//
// The order is the safety. What is broken already comes before anything that works, since to replace it takes nothing
// away; nothing that works is touched while anything is awaited; and a batch never leaves one failure domain.
package rollout

import (
	"cmp"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// State is how far an OSD's pod is from what its template says.
type State string

// The states, as the pods' annotation has them, and missing, which has no pod that could say so.
const (
	UpToDate  State = "up-to-date"
	OutOfDate State = "out-of-date"
	Ready     State = "ready"   // was replaced, serves again, and nobody has taken note yet
	Unready   State = "unready" // was replaced, and does not serve yet
	Missing   State = "missing"
)

// OSD is one OSD of a rollout.
type OSD struct {
	Key  string `json:"key"`            // "node-a:/dev/sdb", or the name of its Deployment
	Name string `json:"name,omitempty"` // "osd.3"; "" as long as the storage cluster does not know it
	Host string `json:"host"`
	// Domain is its failure domain, of the type that the pools rely on; "" as long as it is in none, so that nobody misses
	// it.
	Domain string `json:"domain,omitempty"`
	// Unit is what may be replaced together with it: its host, its zone, … "" when it is replaced alone.
	Unit  string `json:"unit,omitempty"`
	State State  `json:"state"`
	// Serves: its pod is ready, and the storage cluster says that it is up.
	Serves bool `json:"serves,omitempty"`
	// Up: the storage cluster says so, whatever becomes of its pod. To stop it takes something away.
	Up bool `json:"up,omitempty"`
	// Unheard: it is up, but the storage cluster's governors do not hear it, so that no other failure domain opens before
	// it has started anew.
	Unheard bool `json:"unheard,omitempty"`
	// Away says why it cannot serve where it is: its node is cordoned, not ready, or gone. Whoever took the node brings it
	// back.
	Away string `json:"away,omitempty"`
	// Excused: a person said not to wait for it.
	Excused bool `json:"excused,omitempty"`
	// Of a pod that somebody else wants gone: its UID; the epoch in which the daemon came up, so that a later one shows
	// that it is back; and whether nothing takes its place.
	Pod     string `json:"pod,omitempty"`
	Epoch   int64  `json:"epoch,omitempty"`
	ForGood bool   `json:"forGood,omitempty"`
}

// UnitOf is what may be replaced together with an OSD, whose host and failure domain are known, by the update domain:
// OSD (or ""), host, or any type of CRUSH's, in any case. location is where the OSD is, by those types. Of OSDs that go
// one at a time several go together if a person said so.
func UnitOf(updateDomain string, maxParallel int, o OSD, location map[string]string) string {
	switch strings.ToLower(updateDomain) {
	case "", "osd":
		if maxParallel > 1 {
			return o.Domain
		}
		return ""
	case "host":
		return o.Host
	}
	for crushType, name := range location {
		if strings.EqualFold(crushType, updateDomain) && name != "" {
			return name
		}
	}
	return o.Host
}

func (o OSD) String() string {
	if o.Name != "" {
		return o.Name
	}
	return o.Key
}

// awaits tells whether nothing that works may be touched before this OSD serves. One that crashed after it was replaced
// counts as much as one that never came up.
func (in Input) awaits(o OSD) bool {
	if in.skips(o) {
		return false
	}
	switch o.State {
	case Ready, Unready:
		return true
	case UpToDate:
		return !o.Serves && !o.Excused
	case OutOfDate:
		return !o.Serves && o.Away != ""
	case Missing:
	}
	return false
}

// broken tells whether an OSD that is to be replaced does not serve anyway, and could.
func (in Input) broken(o OSD) bool {
	return o.State == OutOfDate && !o.Serves && o.Away == "" && !in.skips(o)
}

// Counts is how many OSDs are in which state.
type Counts struct {
	Total     int `json:"total"`
	UpToDate  int `json:"upToDate"`
	OutOfDate int `json:"outOfDate"`
	Ready     int `json:"ready"`
	Unready   int `json:"unready"`
	Missing   int `json:"missing"`
	// Skipped are out of date, or were replaced and do not serve, and stay so because a person said so. They are counted
	// there, too.
	Skipped int `json:"skipped,omitempty"`
	// Down are up to date, do not serve, and nobody said not to wait for them.
	Down int `json:"down,omitempty"`
}

// Count counts.
func Count(in Input) Counts {
	c := Counts{Total: len(in.OSDs)}
	for _, o := range in.OSDs {
		if in.skips(o) && o.State != UpToDate && o.State != Missing {
			c.Skipped++
		}
		switch o.State {
		case OutOfDate:
			c.OutOfDate++
		case Ready:
			c.Ready++
		case Unready:
			c.Unready++
		case Missing:
			c.Missing++
		case UpToDate:
			c.UpToDate++
			if in.awaits(o) {
				c.Down++
			}
		}
	}
	return c
}

// Settled tells whether nothing is left to do: every OSD is there, serves, and is as its template says or was skipped.
func (c Counts) Settled() bool {
	return c.UpToDate+c.Skipped == c.Total && c.Down == 0
}

// Progress is how many of how many OSDs the rollout has brought where they belong.
func (c Counts) Progress() (done, of int) { return c.UpToDate, c.Total - c.Skipped }

// Input is all that a decision depends on.
type Input struct {
	OSDs []OSD `json:"osds"`
	// DomainType is the type of OSD.Domain.
	DomainType string `json:"domainType"`
	// MaxParallel bounds a batch; 0: what one unit in one failure domain has.
	MaxParallel int `json:"maxParallel,omitempty"`
	// Skip names OSDs, by key or name, that are not to be replaced.
	Skip []string `json:"skip,omitempty"`
	// Canary: the first OSD goes alone, and nobody else before somebody has judged it.
	Canary bool `json:"canary,omitempty"`
	// First is a failure domain that goes before all others: it is open already.
	First string `json:"first,omitempty"`
}

// Excused are the OSDs that do not serve, and for which nobody waits, because a person said so.
func Excused(in Input) (names []string) {
	for _, o := range in.OSDs {
		if !o.Serves && o.Name != "" && (o.Excused || in.skips(o)) {
			names = append(names, o.Name)
		}
	}
	return names[:min(len(names), atOnce)]
}

func (in Input) skips(o OSD) bool {
	return slices.Contains(in.Skip, o.Key) || o.Name != "" && slices.Contains(in.Skip, o.Name)
}

// sorted is the order of a rollout: failure domain by failure domain, in it unit by unit.
func (in Input) sorted() []OSD {
	out := slices.Clone(in.OSDs)
	slices.SortFunc(out, func(a, b OSD) int {
		return cmp.Or(in.later(a)-in.later(b), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Unit, b.Unit),
			cmp.Compare(a.Host, b.Host),
			cmp.Compare(a.Key, b.Key))
	})
	return out
}

func (in Input) later(o OSD) int {
	if in.First != "" && o.Domain == in.First {
		return 0
	}
	return 1
}

func (in Input) domain(name string) storage.FailureDomain {
	if name == "" {
		return storage.FailureDomain{}
	}
	return storage.FailureDomain{Type: in.DomainType, Name: name}
}
