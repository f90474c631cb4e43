// Package storage holds the words that every part of lockkeeper shares about a replicated storage cluster, whatever its
// kind: failure domains, daemons, what was seen of them, and how far that knowledge can be trusted. Ceph is the first
// kind; its OSDs are the daemons.
//
// The types cross workflow and activity boundaries, so they are plain JSON and small: a View of ten thousand daemons
// names only the failure domains in which something is worth saying.
package storage

import (
	"fmt"
	"slices"
	"time"
)

// Kind is a kind of storage. Observations and states that say nothing are of Ceph, which was the first.
type Kind string

// The kinds. Ceph is the one that has no name.
const (
	Ceph     Kind = ""
	Longhorn Kind = "Longhorn"
)

// ClusterKey names the MaintenancePolicy of a storage cluster. There is one policy, one keeper and one lease for each.
type ClusterKey struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func (k ClusterKey) String() string { return k.Namespace + "/" + k.Name }

// FailureDomain is a unit of the storage cluster's topology that may be lost as a whole: {zone, zone-x}, {host,
// node-a}.
type FailureDomain struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// IsZero tells whether no failure domain is meant.
func (d FailureDomain) IsZero() bool { return d == FailureDomain{} }

func (d FailureDomain) String() string {
	if d.IsZero() {
		return "none"
	}
	return d.Type + " " + d.Name
}

// PodState is what Kubernetes says about the pod of one storage daemon.
type PodState string

// Pod states, from serving to absent. A daemon without any pod is judged by the storage cluster alone.
const (
	PodReady       PodState = "Ready"
	PodNotReady    PodState = "NotReady"    // its process runs, but a probe fails
	PodPending     PodState = "Pending"     // evicted or new, not running anywhere
	PodTerminating PodState = "Terminating" // told to stop
	PodNone        PodState = "None"        // no pod was found
)

// Leaving tells whether the pod's process is stopped or about to be, so that the daemon counts as down even before
// the storage cluster has noticed.
func (s PodState) Leaving() bool { return s == PodPending || s == PodTerminating }

// Daemon is one storage daemon about which there is something to say: it is down, leaving, or not ready.
type Daemon struct {
	Name string `json:"name"` // "osd.3"
	Node string `json:"node,omitempty"`
	Up   bool   `json:"up"` // by the storage cluster's own word
	// DownAt is the ChangeEpoch at which it was called down last; 0: it is up, or nobody knows.
	DownAt int64    `json:"downAt,omitempty"`
	Pod    PodState `json:"pod"`
	// Restarting: its pod was seen leaving, and is gone or there again, but the storage cluster's map still tells of its
	// former life.
	Restarting bool `json:"restarting,omitempty"`
}

// Down tells whether the daemon does not serve, or is about to stop serving.
func (d Daemon) Down() bool { return !d.Up || d.Unsettled() }

// Unsettled tells whether the storage cluster's map says that it is up, and does not know yet that it stops, or
// stopped.
func (d Daemon) Unsettled() bool { return d.Up && (d.Pod.Leaving() || d.Restarting) }

func (d Daemon) String() string {
	where := ""
	if d.Node != "" {
		where = " on " + d.Node
	}
	switch {
	case !d.Up:
		return fmt.Sprintf("%s%s is down", d.Name, where)
	case d.Pod.Leaving():
		return fmt.Sprintf("%s%s is stopping (pod %s)", d.Name, where, d.Pod)
	case d.Restarting && d.Pod == PodNone:
		return fmt.Sprintf("%s%s is stopping (its pod is gone)", d.Name, where)
	case d.Restarting:
		return fmt.Sprintf("%s%s is starting again", d.Name, where)
	default:
		return fmt.Sprintf("%s%s serves, but its pod is %s", d.Name, where, d.Pod)
	}
}

// Domain is one failure domain, as last seen.
type Domain struct {
	Name string `json:"name"`
	// LabelValues are the values of View.LabelKey on this domain's pods: what a budget's selector leaves out to open it.
	LabelValues []string `json:"labelValues,omitempty"`
	Daemons     int      `json:"daemons"`            // that belong to it and are expected to serve
	Troubled    []Daemon `json:"troubled,omitempty"` // those that are down, leaving or not ready, and are named
	Rest        Rest     `json:"rest,omitzero"`      // those that are not
	// Merged is how many failure domains these are together, for View.Others.
	Merged int `json:"merged,omitempty"`
	// Touched: a daemon of it went up or down after the epoch of the clean proof that the observer was given.
	Touched bool `json:"touched,omitempty"`
	// Returned: data may be placed on a daemon of it on which none was placed at that proof, since it was down.
	Returned bool `json:"returned,omitempty"`
	// OKToStop is the storage cluster's own answer to "may all daemons of this domain that still run stop now?".
	// nil: not asked. It is only as fresh as the PG knowledge behind it.
	OKToStop *Answer `json:"okToStop,omitempty"`
}

// Down lists the daemons that do not serve, or are about to stop, and are named.
func (d Domain) Down() []Daemon {
	var out []Daemon
	for _, x := range d.Troubled {
		if x.Down() {
			out = append(out, x)
		}
	}
	return out
}

// Refusal is what the storage cluster has against stopping daemons.
type Refusal string

// The kinds of a no.
const (
	RefusalHarm    Refusal = "Harm"    // data would become unavailable
	RefusalAlready Refusal = "Already" // data of which these daemons have a copy is unavailable now
	RefusalUnknown Refusal = "Unknown" // it cannot tell at the moment
)

// Answer is a yes or a no with its reason. An answer is never an error: an error means that nobody answered.
type Answer struct {
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
	// Refusal is the kind of a no of ok-to-stop. "": it was a yes, nobody answered, or the answer is of an older version.
	Refusal Refusal `json:"refusal,omitempty"`
	// Silence: nobody answered, which counts as a no; but asking again may help although nothing has changed.
	Silence bool `json:"silence,omitempty"`
	// Mendable: a no because of daemons elsewhere, which starting them anew may mend. A job that starts daemons anew
	// anyway looks whether it has to begin with those.
	Mendable bool `json:"mendable,omitempty"`
}

// Node is a Kubernetes node that hosts storage daemons and is not simply in service.
type Node struct {
	Name     string   `json:"name"`
	Domain   string   `json:"domain"`
	Domains  []string `json:"domains,omitempty"`  // all of them, if its daemons are in several
	Host     string   `json:"host"`               // the name of its bucket in the storage cluster's topology
	Hosts    []string `json:"hosts,omitempty"`    // all of them, if its daemons are in several: one per volume, say
	Cordoned bool     `json:"cordoned,omitempty"` // unschedulable
	Tainted  string   `json:"tainted,omitempty"`  // the autoscaler's taint that announces its removal
	Gone     bool     `json:"gone,omitempty"`     // the Node object is deleted
	NotReady bool     `json:"notReady,omitempty"`
	// OKToStop is the storage cluster's answer to "may all daemons of this node that still run stop now?". It is asked of
	// nodes that are in several failure domains and that a job is about; nil: not asked.
	OKToStop *Answer `json:"okToStop,omitempty"`
	// Lost are how many of its daemons the storage cluster's map calls up although Kubernetes has lost the node.
	Lost    int      `json:"lost,omitempty"`
	Daemons []string `json:"daemons"`        // all of its daemons
	Down    []string `json:"down,omitempty"` // those that are down or leaving
	// MoreDaemons and MoreDown are those that are not named.
	MoreDaemons int `json:"moreDaemons,omitempty"`
	MoreDown    int `json:"moreDown,omitempty"`
}

// CrushHosts are the names of all of its buckets in the storage cluster's topology.
func (n Node) CrushHosts() []string {
	if len(n.Hosts) > 0 || n.Host == "" {
		return n.Hosts
	}
	return []string{n.Host}
}

// In tells whether the node has daemons in a failure domain. Of a node in several only the first counts if nobody asked
// about the node.
func (n Node) In(domain string) bool {
	return n.Domain == domain || n.OKToStop != nil && slices.Contains(n.Domains, domain)
}

// NextDomain is the failure domain of the node that goes next: the first in which a daemon of it is not down or
// leaving. Of a node in several failure domains each has the name of its only daemon. When all are down it is Domain.
func (n Node) NextDomain() string {
	for _, name := range n.Domains {
		if !slices.Contains(n.Down, name) {
			return name
		}
	}
	return n.Domain
}

// Counts is how many daemons there are on the node, and how many of them are down or leaving.
func (n Node) Counts() (daemons, down int) {
	return len(n.Daemons) + n.MoreDaemons, len(n.Down) + n.MoreDown
}

// Leaving tells whether somebody announced, or already carried out, the disruption of this node.
func (n Node) Leaving() bool { return n.Cordoned || n.Tainted != "" || n.Gone }

// Mon is one member of the storage cluster's own quorum, and its pod. Without a majority of them the cluster answers
// nobody.
type Mon struct {
	Name string `json:"name"`
	// Node is where its pod runs, or the only one where it could; "" when that is not known, or it has no pod.
	Node string `json:"node,omitempty"`
	// Domain is the failure domain of the storage daemons on that node; "" when there are none.
	Domain string `json:"domain,omitempty"`
	// Leaving: its node is cordoned, tainted for removal, or gone.
	Leaving  bool     `json:"leaving,omitempty"`
	InQuorum bool     `json:"inQuorum,omitempty"`
	Pod      PodState `json:"pod"`
}

// Standing tells whether the mon counts in quorum and nothing is known to take it away.
func (m Mon) Standing() bool { return m.InQuorum && !m.Pod.Leaving() }

func (m Mon) String() string {
	where := ""
	if m.Node != "" {
		where = " on " + m.Node
	}
	switch {
	case m.Pod.Leaving():
		return fmt.Sprintf("mon.%s%s is stopping (pod %s)", m.Name, where, m.Pod)
	case !m.InQuorum:
		return fmt.Sprintf("mon.%s%s is out of quorum", m.Name, where)
	default:
		return fmt.Sprintf("mon.%s%s is in quorum", m.Name, where)
	}
}

// Disconnected are daemons that serve, and that the storage cluster's governors do not hear: when another daemon goes
// with which they share data, nobody agrees any more on who has it, and it stands still until they are restarted.
type Disconnected struct {
	Daemons int `json:"daemons"`
	// Presumed is how many of them may be heard again in a moment: the governors were silent, or nobody asked them, and
	// it is not known since when they do not hear them.
	Presumed int `json:"presumed,omitempty"`
	// Domains are the failure domains that they belong to, by name; empty: nobody knows which daemons they are. Why says
	// why not.
	Domains []string `json:"domains,omitempty"`
	// Examples are a few of them, of those that are not presumed if there are any: "osd.3 in zone-y".
	Examples []string `json:"examples,omitempty"`
	Why      string   `json:"why,omitempty"`
}

// Certain is how many are known not to be heard.
func (d *Disconnected) Certain() int { return d.Daemons - d.Presumed }

// Within tells whether all of them are known to be in one failure domain.
func (d *Disconnected) Within(domain FailureDomain) bool {
	return d == nil || len(d.Domains) == 1 && d.Domains[0] == domain.Name
}

// Outside tells whether there are some, and none of them can be in one failure domain.
func (d *Disconnected) Outside(domain FailureDomain) bool {
	return d != nil && len(d.Domains) > 0 && !slices.Contains(d.Domains, domain.Name)
}

// Override is a pod that may go whatever the budgets say, on a person's word.
type Override struct {
	Pod    string `json:"pod"`
	UID    string `json:"uid"`
	Daemon string `json:"daemon"` // that it runs
}

// MostOverrides bounds how many a View names.
const MostOverrides = 16

// View is what one observation saw of a storage cluster: its own map and Kubernetes, read one right after the other.
type View struct {
	At time.Time `json:"at"`
	// Unavailable says why the storage cluster gave no answer that counts (no quorum, a timeout). Then all else is empty.
	Unavailable string `json:"unavailable,omitempty"`
	// Cause is what a person can mend about that, if it is known.
	Cause Cause `json:"cause,omitempty"`
	// NotInCharge says why nothing may open although all may be well: it is not settled yet that no other policy looks
	// after the same storage cluster.
	NotInCharge string `json:"notInCharge,omitempty"`
	// Silent is when the storage cluster's governors last were silent for so long that, for a while, their map may not
	// tell who went down meanwhile; zero: never. By the clock of the worker that looked.
	Silent time.Time `json:"silent,omitzero"`

	// Version is that of the storage cluster's software, the oldest that a governor has: "18". "": whoever looked did not
	// ask.
	Version string `json:"version,omitempty"`

	FailureDomainType string `json:"failureDomainType"` // the smallest one that any pool relies on
	LabelKey          string `json:"labelKey"`          // the pod label that carries it
	// Compromise says why no pool relies on that type: the types that the pools rely on cut across each other. "": a pool
	// does.
	Compromise string `json:"compromise,omitempty"`
	Daemons    int    `json:"daemons"` // expected to serve: exist, were up once, are not under replacement
	Up         int    `json:"up"`
	// Podless daemons are up but have no pod: they run outside of Kubernetes, and no budget counts them.
	Podless int `json:"podless,omitempty"`
	// Unseen are those of them of whom nobody saw a pod leave. A bare pod may have come and gone between two looks.
	Unseen int `json:"unseen,omitempty"`
	// ChangeEpoch is the epoch of the storage cluster's map at which a daemon last went up or down or was marked in or
	// out.
	ChangeEpoch int64 `json:"changeEpoch"`
	// Awaited are daemons that are down though data may be placed on them, MostAwaited at most. In a cluster whose data is
	// whole there are hardly any: nothing is placed on them for another reason.
	Awaited []string `json:"awaited,omitempty"`
	// Placement stands for everything that decides where data is: who is up, in, with which weight, pools, topology.
	// Health speaks of this View only when it has the same.
	Placement string `json:"placement,omitempty"`
	// Departed remembers daemons whose pods were seen leaving, with the ChangeEpoch before that: they are back when the
	// map tells of a life that began later. While the mons elect, the map stands still, and a pod may be back before that.
	Departed Departed `json:"departed,omitempty"`
	// Shape changes when pools, their rules or the set of daemons change, so that an older proof no longer speaks of this
	// cluster.
	Shape   string   `json:"shape"`
	Domains []Domain `json:"domains,omitempty"` // the troubled ones and those that were asked for
	Others  *Domain  `json:"others,omitempty"`  // further troubled ones, taken together; nil: none
	Nodes   []Node   `json:"nodes,omitempty"`   // leaving or with troubled daemons, and those that were asked for
	// Committed: the mons committed something right before they were asked who is in quorum, so whoever they named lives.
	// Otherwise one that is dead may be named for some seconds.
	Committed bool `json:"committed,omitempty"`
	// Mons is the whole monmap; empty for a kind of storage without mons.
	Mons []Mon `json:"mons,omitempty"`
	// StrayMons are mons that have pods and are not in the monmap: they have left it, or have not joined it yet.
	StrayMons []string `json:"strayMons,omitempty"`
	// MonKey is the pod label that carries a mon's name. "" when the mons' pods do not tell which mon they are.
	MonKey string `json:"monKey,omitempty"`
	// IdleMons is how many mon pods are ready beyond those in quorum.
	IdleMons int `json:"idleMons,omitempty"`
	// Disconnected are daemons that the governors do not hear although they are up; nil: there are none, or nobody knows.
	Disconnected *Disconnected `json:"disconnected,omitempty"`
	// Marks is what the marks on the daemons' pods say; nil: whoever looked did not know of marks yet.
	Marks *Marks `json:"marks,omitempty"`
	// MonsMixed: some mon pods have a controller and some have none, so that no budget can count how many there should be.
	MonsMixed bool `json:"monsMixed,omitempty"`
	// Overrides are pods that a person has let go out of turn and that are still there, MostOverrides at most.
	Overrides []Override `json:"overrides,omitempty"`
	// Intolerant names, with the reason, what could not bear the loss of one failure domain (a pool of size 1, say).
	Intolerant []string `json:"intolerant,omitempty"`
	// Problems are reasons to stay closed: labels that contradict the topology, a pod under two budgets, …
	Problems []string `json:"problems,omitempty"`
	// Notes are for people: what is unusual, and no reason to stay closed.
	Notes []string `json:"notes,omitempty"`
	// Flagged are the hosts that carry the storage's flag (Ceph: noout), whoever set it: the keeper tells its own by its
	// records.
	Flagged []string `json:"noout,omitempty"`
	// Hosts are those that were asked for and that the topology has, under the names that they have now; Gone are those
	// that it lacks. A host is in neither when nobody asked for it, or nobody answered: then nothing is known of it.
	Hosts []Host `json:"hosts,omitempty"`
	Gone  []Host `json:"gone,omitempty"`
}

// Host is a host of the storage cluster's topology. Its ID stays when it is renamed; 0: not known.
type Host struct {
	Name string `json:"name"`
	ID   int    `json:"id,omitempty"`
}

// Domain finds a failure domain by name. The zero Domain with the name is returned for one without anything to say.
func (v View) Domain(name string) Domain {
	for _, d := range v.Domains {
		if d.Name == name {
			return d
		}
	}
	return Domain{Name: name}
}

// Node finds a node by name.
func (v View) Node(name string) (Node, bool) {
	for _, n := range v.Nodes {
		if n.Name == name {
			return n, true
		}
	}
	return Node{}, false
}

// Relocation is what becomes of the data on a node that is leaving: it gets no more, and if it is to go Away, what the
// node has is moved to other nodes.
type Relocation struct {
	Node string `json:"node"`
	Away bool   `json:"away,omitempty"`
}
