// Package monplan decides what happens next to the mons of a Ceph cluster: whether one is added, moved, replaced
// because it is dead, restarted or removed, and which act of that comes next. It is pure: it gets what was seen a
// moment ago, and a step that is under way is known by what it has left in the cluster, so that a crash between two
// acts costs nothing.
//
// One step at a time:
//
//	Add       the newcomer joins
//	Migrate   the newcomer joins, then the living mon that it replaces leaves
//	OneLess   the living mon leaves, then the newcomer joins: where there is no place for both
//	FailOver  the dead mon leaves, then the newcomer joins
//	Remove    a mon leaves that nobody has to replace
//	Restart   a mon gets a new pod template, in place
//	TidyUp    what a step left behind that was ended in the middle
//
// A living mon is replaced new before old, a dead one old before new. If a newcomer joined beside a dead mon and died
// at once, two of four would live, and the mons would never agree again; without the dead one it is two of three.
// Everything that can be made ready without touching the monmap is ready before: the place, the volume, the image.
package monplan

import (
	"fmt"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/quorum"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// Seen is what one look saw, and what is wanted.
type Seen struct {
	Now  time.Time
	Want Want
	Mode Mode
	// Mons are those of the monmap, taken fresh.
	Mons []Mon
	// Unproved is why nobody knows which mons live: no commit was answered. "": the mons that are Alive answered one.
	Unproved string
	// Endpoints are the mons that everybody finds by the ConfigMap of the mons' addresses.
	Endpoints []string
	// Strays are mons that have a canary although no step is under way that makes them: an act that was thought to be over
	// was carried out late.
	Strays []string
	// NextID is the number of the next name. It rises with every name that is given, also to a mon that never joined.
	NextID int
	// Addresses are those that mons have, and those that they have left.
	Addresses []Address
	// Nodes are all nodes, with the reason why one can take no mon today.
	Nodes []Node
	// Work is the step that is under way; nil: none.
	Work *Work
	// Failed are mons whose migration was rolled back because the newcomer did not join. They are not tried again.
	Failed []string
	// Ending: whoever looks is about to stop. A step that is under way goes on, and none begins.
	Ending bool
	// Image is what is known of the spec's image, where the next step gives it to a mon.
	Image Image
	// Elsewhere says who else looks after these mons: "CephCluster rook-ceph". lockkeeper stands aside then.
	Elsewhere string
}

// Want is what the spec asks for.
type Want struct {
	Generation int64 // of the spec
	Count      int
	Zones      []string // in which mons may run, each with one at most; none: Kubernetes alone decides
	// Storage is that of a new mon, by zone; by "" where there are no zones.
	Storage         map[string]Storage
	MultiplePerNode bool
	HostNetwork     bool
	DataDir         string // the path on nodes below which stores are that are not on claims
	Template        string // hash of what the pods have in common
	HealthTimeout   time.Duration
	// JoinTimeout is how long a newcomer may take from its start until it is in quorum.
	JoinTimeout time.Duration
	// AllowQuorumLoss: one of one or two mons may be restarted although Ceph stops answering meanwhile.
	AllowQuorumLoss bool
}

// Mode is what a person, or the spec, allows beyond what is done by itself.
type Mode struct {
	// Migrate: move mons that are not as the spec says, and remove superfluous ones.
	Migrate bool
	// OneLess: where a node has no place for two mons, a living one may leave before its successor joins.
	OneLess bool
}

// Storage is what a mon keeps its store on.
type Storage struct {
	Claim bool   // a volume claim; otherwise a path of the node
	Class string // of the claim
}

func (s Storage) String() string {
	switch {
	case !s.Claim:
		return "HostPath"
	case s.Class == "":
		return "a PVC" // of whatever class: the spec leaves it to Kubernetes
	}
	return "a PVC of class " + s.Class
}

// Mon is one mon of the monmap.
type Mon struct {
	Name  string
	Alive bool // in quorum; it counts while Seen.Unproved is ""
	// OutSince is since when it is out of quorum without a break; zero: it is in quorum.
	OutSince time.Time
	Node     string
	NodeGone bool // the Node object is deleted
	Bound    bool // its storage is bound to that node
	Zone     string
	// MadeFor is the zone for which lockkeeper made it, or in which it was first seen on its node. Labels of nodes change;
	// that moves no mon.
	MadeFor  string
	Storage  Storage
	Template string // ""; not known, which is no difference
	// Renewing: its pod is not the one of its Deployment's template yet. It may serve, and will stop.
	Renewing bool
	// Unheard is the node of one of its pods that is not ready: nobody starts or ends a pod there; what runs goes on.
	Unheard string
	Drain   string // the drain of its node, if the keeper knows of one
	// RunBy is who runs it instead of a Deployment of its own, and would start it again: "DaemonSet ceph-mon"; "": nobody.
	// Such a mon counts, and is left alone.
	RunBy string
	// Fixed is what no restart gives it; nil: not known, which is no difference. Of an adopted mon it is not compared: it
	// is as whoever made it wanted.
	Fixed *Fixed
}

// Fixed is what a mon has from its beginning, beside its storage.
type Fixed struct {
	HostNetwork bool
	DataDir     string // "": its store is on a claim
}

// zone is where the mon belongs.
func (m Mon) zone() string {
	if m.MadeFor != "" {
		return m.MadeFor
	}
	return m.Zone
}

// Node is a node of the Kubernetes cluster.
type Node struct {
	Name, Zone string
	Why        string // it can take no mon today; "": it can, as far as anybody but the scheduler knows
	// Passing: what Why says ends by itself. The node is not ready, and would do if it were.
	Passing bool
	// IP is that of a mon there with hostNetwork.
	IP string
}

// Kind is what a step is about.
type Kind string

// The kinds of steps.
const (
	Add      Kind = "Add"
	Migrate  Kind = "Migrate"
	OneLess  Kind = "OneLess"
	FailOver Kind = "FailOver"
	Remove   Kind = "Remove"
	Restart  Kind = "Restart"
	TidyUp   Kind = "TidyUp"
)

// Work is a step that is under way: what was decided, and what it has left in the cluster.
type Work struct {
	Kind       Kind
	Newcomer   string // "": none
	Old        string // which mon leaves, restarts or is tidied up after; "": none
	Generation int64  // of the spec by which the newcomer is made

	Canary bool // there is one
	// Scheduled: the canary runs, on a node that there is, so that this node has the image. When the canary was dropped on
	// purpose it stays true, as Node and Zone do, until the newcomer is started or nobody hears of that node any more.
	Scheduled bool
	Node      string
	Zone      string
	// Claimed: the newcomer's volume is bound, for this zone, or it needs none.
	Claimed   bool
	Started   time.Time // when the newcomer's pod was first about to be made; zero: never
	Joined    bool      // the newcomer has been in quorum
	Running   bool      // there is a Deployment of the newcomer
	Ending    bool      // there is none any more, and its pod still runs: it may join the monmap all the same
	Stopped   bool      // there is no Deployment of the old mon
	Restarted bool      // the old mon's Deployment has the template of the spec
	Renewed   bool      // so has its pod, and none is left that has not: until then the old pod may still serve
	Traces    bool      // there is a Service or a volume claim of the newcomer
	// Avoid are nodes on which the canary must not run, whatever the scheduler would say.
	Avoid []string
	// Undo is why the step is rolled back; "": it is not.
	Undo string
}

// Do is one act. Each may be repeated, and looks before it acts.
type Do string

// The acts.
const (
	Schedule      Do = "Schedule"      // make the canary, wait until it runs on a node
	ClaimVolume   Do = "ClaimVolume"   // make the claim, wait until its volume is bound
	DropCanary    Do = "DropCanary"    // delete the canary, wait until its pod is gone
	Start         Do = "Start"         // take the monmap, make the store, start the mon
	AwaitQuorum   Do = "AwaitQuorum"   // wait until the mon is in quorum and a commit was answered after that
	SaveEndpoints Do = "SaveEndpoints" // tell everybody where the mons are
	RemoveMon     Do = "RemoveMon"     // take the mon out of the monmap
	StopMon       Do = "StopMon"       // delete the mon's Deployment and Service; its storage stays
	RestartMon    Do = "RestartMon"    // give the mon's Deployment the template of the spec
	DropTraces    Do = "DropTraces"    // delete the newcomer's Service and claim: it was never in quorum
)

// Act is one act on one mon.
type Act struct {
	Do  Do
	Mon string
}

func (a Act) String() string { return string(a.Do) + " mon." + a.Mon }

// Verdict is what comes next.
type Verdict string

// The verdicts.
const (
	Done   Verdict = "Done"   // nothing is left to do
	Wait   Verdict = "Wait"   // for Why, until Until at the latest if that is set
	Refuse Verdict = "Refuse" // a person has to change something; nothing was changed
	Move   Verdict = "Move"   // do Acts[0], and look again
)

// Step is what comes next, and why.
type Step struct {
	Verdict Verdict
	Why     string
	// Until is when a wait is over by itself.
	Until time.Time
	// Work is the step that is under way, or begins. It is written down before its first act.
	Work *Work
	// Acts are what is left of it, in order, as far as can be foreseen. Only those that are done Together were judged by
	// what was seen.
	Acts []Act
	// Takes is the living mon that goes meanwhile, or the one that joins, so that the step needs the lease; "": the step
	// takes nothing away.
	Takes string
	// Early: the first act gets a place ready, and may be done while the storage heals from the step before.
	Early bool `json:",omitempty"`
	// Risk is what the step costs for a while, in words.
	Risk string
}

// Next is what comes next.
func Next(s Seen) Step {
	switch {
	case s.Unproved != "":
		return Step{Verdict: Wait, Why: "Ceph has not committed anything: " + s.Unproved, Work: s.Work}
	case !s.Monmap().Quorum():
		return Step{Verdict: Wait, Why: s.noQuorum(), Work: s.Work}
	case len(s.Strays) > 0:
		return s.dropStray()
	case s.Work != nil:
		if step, over := s.goOn(*s.Work); !over {
			return step
		}
	}
	if step, tidies := s.tidyUp(); tidies {
		return step
	}
	if s.Ending {
		return Step{Verdict: Wait, Why: "the job of these mons was ended, and left no step under way"}
	}
	return s.begin()
}

// noQuorum says what a person must do. Nothing that needs a commit works any more.
func (s Seen) noQuorum() string {
	m := s.Monmap()
	return fmt.Sprintf("only %d of %d mons live (out of quorum: %v), and a majority is %d: no mon can be replaced. Bring "+
		"%d of them back; if their stores are lost, rebuild the quorum from a survivor's store by Ceph's documentation",
		m.Living(), len(m), m.Dead(), quorum.Majority(len(m)), quorum.Majority(len(m))-m.Living())
}

// Monmap is what the arithmetic of majorities needs.
func (s Seen) Monmap() quorum.Map {
	m := make(quorum.Map, 0, len(s.Mons))
	for _, mon := range s.Mons {
		m = append(m, quorum.Mon{Name: mon.Name, Zone: mon.Zone, Alive: mon.Alive})
	}
	return m
}

// FatalZones are the zones whose loss would take the quorum away.
func (s Seen) FatalZones() []string { return s.Monmap().Fatal() }

func (s Seen) mon(name string) (Mon, bool) {
	for _, m := range s.Mons {
		if m.Name == name && name != "" {
			return m, true
		}
	}
	return Mon{}, false
}

func yes() storage.Answer { return storage.Answer{OK: true} }

func no(format string, args ...any) storage.Answer {
	return storage.Answer{Reason: fmt.Sprintf(format, args...)}
}

// Kind is that of the step that is under way, or begins; "": there is none.
func (s Step) Kind() Kind {
	if s.Work == nil {
		return ""
	}
	return s.Work.Kind
}
