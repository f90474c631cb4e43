package podspec

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Missing is the state of an OSD without any pod, which may get one now. No pod can say so.
const Missing State = "missing"

// Nodes says of every node, by its hostname, why its OSDs may not serve; "" if it is in service. nil: nothing is known
// of nodes.
type Nodes map[string]string

// Away says why the OSDs of a host may not serve; "" if nothing speaks against it.
func (n Nodes) Away(host string) string {
	why, known := n[host]
	if !known && n != nil {
		return "its host " + host + " is no node"
	}
	return why
}

// Standing is how an OSD of the spec stands.
type Standing struct {
	OSD OSD
	// State is UpToDate, OutOfDate, Ready, Unready or Missing.
	State State
	// Pod is the one that stands for it; nil: it has none, or none that is any good.
	Pod *Pod
	// Away says why it has no Pod and will have none before somebody or something else has moved. "" also when its pod is
	// just on its way.
	Away string
}

// Standings are those of all OSDs that the spec wants.
func (c *Classified) Standings(desired []OSD, nodes Nodes) (out []Standing) {
	seen := map[string]bool{}
	add := func(p *Pod, state State) {
		seen[p.OSD.Key()] = true
		out = append(out, Standing{OSD: p.OSD, State: state, Pod: p})
	}
	for _, pods := range [][]Pod{c.UpToDate, c.OutOfDate, c.Ready, c.Unready} {
		for i := range pods {
			add(&pods[i], pods[i].State)
		}
	}
	for i := range c.Invalid { // to take it away takes down its OSD, so it goes like one that is out of date
		if p := &c.Invalid[i]; p.Serving && !seen[p.OSD.Key()] {
			add(p, OutOfDate)
		}
	}
	missing := map[string]bool{}
	for _, o := range c.Missing {
		missing[o.Key()] = true
	}
	for _, o := range desired {
		switch {
		case seen[o.Key()]:
		case missing[o.Key()] && c.MayGetPod(o, nodes):
			out = append(out, Standing{OSD: o, State: Missing})
		default:
			out = append(out, Standing{OSD: o, State: Unready, Away: c.Hindered(o, nodes)})
		}
	}
	return out
}

// MayGetPod tells whether a pod for a missing OSD may be made now. Not on a node that somebody empties: a pod that
// tolerates the cordon, as those of OSDs do, would start there at once, and the drain would never end.
func (c *Classified) MayGetPod(o OSD, nodes Nodes) bool {
	return nodes.Away(o.Host) == "" && c.Busy[o.Key()] == ""
}

// Hindered says why an OSD has no pod, and will have none before somebody or something else has moved; "" when its pod
// is just on its way.
func (c *Classified) Hindered(o OSD, nodes Nodes) string {
	for i := range c.Foreign {
		if p := &c.Foreign[i]; p.OSD.Key() == o.Key() {
			return p.LeftAlone()
		}
	}
	for i := range c.Invalid {
		if p := &c.Invalid[i]; p.OSD.Key() == o.Key() && !p.MayGoAt().IsZero() {
			return fmt.Sprintf("its pod ended: %s; it is made anew at %s", strings.TrimPrefix(p.Why, "it has ended: "),
				p.MayGoAt().UTC().Format(time.RFC3339))
		}
	}
	return cmp.Or(c.Busy[o.Key()], nodes.Away(o.Host))
}

// LeftAlone says why a foreign pod is left alone, and what may be done about it.
func (p *Pod) LeftAlone() string {
	if by := metav1.GetControllerOf(p.Pod); by != nil {
		kind := strings.ToLower(by.Kind)
		if kind == "replicaset" {
			kind = "rs"
		}
		return fmt.Sprintf("pod %s is run by %s %s; `kubectl delete %s %s --cascade=orphan` leaves the pod to lockkeeper",
			p.Name, by.Kind, by.Name, kind, by.Name)
	}
	return fmt.Sprintf("pod %s is not lockkeeper's: %s", p.Name, p.Why)
}
