package budget_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/budget"
	"github.com/lockkeeper/lockkeeper/internal/lease"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const (
	zoneLabel = "topology-location-zone"
	perZone   = 2
)

var zones = []string{"x", "y", "z"}

func zone(name string) storage.FailureDomain {
	return storage.FailureDomain{Type: "zone", Name: name}
}

// world is a cluster in words: six OSDs in three zones of two, an OSD on each of the nodes a to f.
type world struct {
	osds       []storage.Daemon
	touched    []string
	cordoned   []string
	gone       []string
	unlabelled string
	unmarked   map[string]bool   // OSDs whose pods carry no mark; all others carry the one that names them
	okToStop   map[string]string // yes, no, already, unknown
	lost       string            // a node
	in         budget.Input
}

// atRest is the world in which all is up and clean, and the proof is as new as the view.
func atRest() *world {
	w := &world{okToStop: map[string]string{}, unmarked: map[string]bool{}}
	for id := range perZone * len(zones) {
		w.osds = append(w.osds, storage.Daemon{
			Name: fmt.Sprintf("osd.%d", id), Node: string(rune('a' + id)), Up: true,
			Pod: storage.PodReady,
		})
	}
	w.in = budget.Input{
		Now:    now,
		View:   storage.View{FailureDomainType: "zone", LabelKey: zoneLabel, ChangeEpoch: 100, Shape: "same"},
		Health: storage.Health{Fresh: true, Clean: true, ChangeEpoch: 100, PGs: 32, PGsClean: 32},
		Proof:  &storage.CleanProof{ChangeEpoch: 100, Shape: "same", At: now},
		Settings: storage.Settings{
			ManagePodBudgets: true, MaintenanceTimeout: 30 * time.Minute, AnnouncementTimeout: time.Minute,
		},
		Announced: map[string]budget.Announcement{},
		Life:      &storage.Life{},
	}
	return w
}

// input joins the parts into what the keeper would have seen.
func (w *world) input() budget.Input {
	in := w.in
	if in.View.Unavailable != "" {
		in.View = storage.View{Unavailable: in.View.Unavailable}
		return in
	}
	in.View.Domains, in.View.Nodes = nil, nil
	in.View.Daemons = len(w.osds)
	m := storage.Marks{}
	if in.View.Marks != nil {
		m = *in.View.Marks
	}
	for _, o := range w.osds {
		switch serves := o.Up && o.Pod == storage.PodReady; {
		case serves && w.unmarked[o.Name]:
			m.Unproved++
		case serves:
			m.Proved++
		case !w.unmarked[o.Name] && o.Pod != storage.PodNone && o.Pod != storage.PodTerminating:
			m.Stale++
		}
	}
	in.View.Marks = &m
	for i, name := range zones {
		d := storage.Domain{
			Name: name, LabelValues: []string{name}, Daemons: perZone,
			Touched: slices.Contains(w.touched, name),
		}
		if name == w.unlabelled {
			d.LabelValues = nil
		}
		if ok, asked := w.okToStop[name]; asked {
			d.OKToStop = &storage.Answer{OK: ok == "yes", Refusal: refusals[ok], Reason: "3 PGs would become unavailable"}
		}
		for _, o := range w.osds[i*perZone : (i+1)*perZone] {
			if o.Up {
				in.View.Up++
			}
			if o.Down() || o.Pod == storage.PodNotReady {
				d.Troubled = append(d.Troubled, o)
			}
			n := storage.Node{
				Name: o.Node, Domain: name, Host: o.Node, Daemons: []string{o.Name},
				Cordoned: slices.Contains(w.cordoned, o.Node), Gone: slices.Contains(w.gone, o.Node),
			}
			if o.Node == w.lost && o.Up {
				n.NotReady, n.Lost = true, 1
			}
			if o.Down() {
				n.Down = []string{o.Name}
			}
			in.View.Nodes = append(in.View.Nodes, n)
		}
		in.View.Domains = append(in.View.Domains, d)
	}
	return in
}

var refusals = map[string]storage.Refusal{
	"no": storage.RefusalHarm, "already": storage.RefusalAlready,
	"unknown": storage.RefusalUnknown,
}

// say changes the world by one word of testdata/decisions.txt.
func (w *world) say(word string) {
	key, value, _ := strings.Cut(word, "=")
	list := strings.Split(value, ",")
	first, second, _ := strings.Cut(value, ":")
	switch key {
	case "touched":
		w.touched = list
		w.in.View.ChangeEpoch += 10
		w.in.Health.ChangeEpoch += 10
	case "health":
		w.sayHealth(value)
	case "proof":
		if value == "none" {
			w.in.Proof = nil
		} else {
			w.in.Proof.Shape = value
		}
	case "okToStop":
		w.okToStop[first] = second
	case "lease":
		w.in.Lease.Holders = []lease.Claim{{WorkflowID: "drain/a", Domain: zone(value), Reason: "drain of a", Granted: now}}
	case "reserve":
		w.in.Lease.Holders = []lease.Claim{{
			WorkflowID: "drain/r", Domain: zone(value), Reason: "drain of r", Granted: now, Reserve: lease.FirstReserve,
		}}
	case "queue":
		w.in.Lease.Queue = []lease.Claim{{WorkflowID: "drain/q", Domain: zone(value)}}
	case "open":
		w.in.Open = zone(value)
	case "announced":
		ago, spent := strings.CutSuffix(second, ":spent")
		w.in.Announced[first] = budget.Announcement{Node: first, Opened: now.Add(-seconds(ago)), Spent: spent}
	case "cordoned":
		w.cordoned = list
	case "gone":
		w.gone = list
	case "unheard":
		w.in.Unheard = true
	case "lost":
		w.lost = value
	case "disconnected":
		w.in.View.Disconnected = disconnected(list)
	case "life":
		w.sayLife(value)
	case "opened":
		w.in.Open, w.in.Opened, w.in.LeftOut = zone(value), zone(value), []string{value}
	case "healing":
		w.in.HealingSince = now.Add(-seconds(value))
	case "timeout":
		w.in.Settings.PGHealthCheckTimeout = seconds(value)
	case "unmarked":
		for _, id := range list {
			w.unmarked["osd."+id] = true
		}
	case "rest":
		w.in.Settings.AtRest = storage.AtRest(value)
	case "mixed":
		w.in.View.Marks = &storage.Marks{Mixed: true}
	case "unavailable":
		w.in.View.Unavailable = "no quorum"
	case "problem":
		w.in.View.Problems = []string{"labels contradict the topology"}
	case "intolerant":
		w.in.View.Intolerant = []string{"pool scratch"}
	case "type":
		w.in.View.FailureDomainType = value
	case "unlabelled":
		w.unlabelled = value
	default:
		id, ok := strings.CutPrefix(key, "osd.")
		if !ok {
			panic("unknown word " + word)
		}
		up, pod, _ := strings.Cut(value, "/")
		o := &w.osds[number(id)]
		o.Up, o.Pod = up == "up", storage.PodState(pod)
	}
}

// disconnected is one OSD of each of these zones, or two of which nobody knows which they are.
func disconnected(zones []string) *storage.Disconnected {
	if zones[0] == "unknown" {
		return &storage.Disconnected{Daemons: 2, Why: "mon.a gave no answer"}
	}
	d := &storage.Disconnected{Daemons: len(zones), Domains: zones}
	for _, z := range zones {
		d.Examples = append(d.Examples, "osd.3 in "+z)
	}
	return d
}

// sayLife: "none", or "x" for an answer to a question about x, or "x:2" for one that names two OSDs.
func (w *world) sayLife(value string) {
	w.in.Life = nil
	about, silent, some := strings.Cut(value, ":")
	if about == "none" {
		return
	}
	w.in.Life = &storage.Life{Outside: zone(about)}
	if some {
		w.in.Life.Silent, w.in.Life.Examples = number(silent), []string{"osd.3 in y"}
	}
}

func (w *world) sayHealth(value string) {
	h := &w.in.Health
	switch value {
	case "clean":
	case "unclean":
		h.Clean, h.PGsClean = false, 20
	case "stale":
		h.Fresh = false
	case "disconnected":
		h.Clean, h.ButDisconnected, h.Reason = false, true, "1 of 6 OSDs that are up have no session with a monitor"
	case "behind":
		h.ChangeEpoch--
	case "broken":
		h.Clean, h.Unexplained = false, []string{"active+clean+inconsistent"}
	default:
		panic("unknown health " + value)
	}
}

func seconds(s string) time.Duration { return time.Duration(number(s)) * time.Second }

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}
