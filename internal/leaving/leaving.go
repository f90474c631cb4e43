// Package leaving says how a node announces that it is about to leave. It is pure, but a node is what it decides about:
// it knows the types of Kubernetes, and nobody who could be asked.
package leaving

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What autoscalers write on a node before they remove it.
const (
	// RemovalTaint is Cluster Autoscaler's. Its value is when it was set, in seconds of Unix time.
	RemovalTaint = "ToBeDeletedByClusterAutoscaler"
	// DisruptedTaint is Karpenter's. It has no value.
	DisruptedTaint = "karpenter.sh/disrupted"
	// DeadlineAnnotation is when Karpenter removes the node whatever its budgets say. It is not on the node but on its
	// NodeClaim, once that is deleted, and exists if the NodeClaim has a terminationGracePeriod.
	DeadlineAnnotation = "karpenter.sh/nodeclaim-termination-timestamp"
)

// DefaultExpiry is the age from which Cluster Autoscaler's taint does not count: such taints are sometimes forgotten.
// The autoscaler gives up a node after two minutes of refused evictions and ten of graceful termination.
const DefaultExpiry = time.Hour

// Way is how a node leaves.
type Way string

// The ways. Not is a node that stays.
const (
	Not       Way = ""
	Cordoned  Way = "cordoned"
	Removal   Way = "tainted by the Cluster Autoscaler"
	Disrupted Way = "tainted by Karpenter"
	Deleting  Way = "being deleted"
	Gone      Way = "gone"
)

// Signs are what a node's object says of its leaving. Two of them can be compared.
type Signs struct {
	Cordoned bool `json:"cordoned,omitempty"`
	// Deleting: the object is being deleted.
	Deleting bool `json:"deleting,omitempty"`
	// Tainted: RemovalTaint is there, with this value.
	Tainted bool   `json:"tainted,omitempty"`
	Taint   string `json:"taint,omitempty"`
	// Disrupted: DisruptedTaint is there.
	Disrupted bool `json:"disrupted,omitempty"`
	// Until is the value of DeadlineAnnotation. Of does not know it: it takes the NodeClaim.
	Until string `json:"until,omitempty"`
}

// Of reads the signs on a node.
func Of(n *corev1.Node) Signs {
	s := Signs{Cordoned: n.Spec.Unschedulable, Deleting: n.DeletionTimestamp != nil}
	for _, t := range n.Spec.Taints {
		switch t.Key {
		case RemovalTaint:
			s.Tainted, s.Taint = true, t.Value
		case DisruptedTaint:
			s.Disrupted = true
		}
	}
	return s
}

// DrivesOff are the taints by which a person, or a program of theirs, has a node's pods driven off: those that do not
// tolerate them are deleted at once. The taints that Kubernetes itself sets on nodes which fail are none of them.
func DrivesOff(n *corev1.Node) (taints []corev1.Taint) {
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute && !OfKubernetes(t.Key) {
			taints = append(taints, t)
		}
	}
	return taints
}

// OfKubernetes tells whether a taint is one that Kubernetes sets on nodes which fail: not-ready, unreachable,
// out-of-service and others.
func OfKubernetes(key string) bool { return strings.HasPrefix(key, "node.kubernetes.io/") }

// NodeClaim is the name of Karpenter's object behind a node; "": it is not one of Karpenter's.
func NodeClaim(n *corev1.Node) string {
	for _, o := range n.OwnerReferences {
		if group, _, _ := strings.Cut(o.APIVersion, "/"); group == "karpenter.sh" && o.Kind == "NodeClaim" {
			return o.Name
		}
	}
	return ""
}

// How says in which way a node leaves. The most certain way comes first. expiry is the age from which RemovalTaint does
// not count; 0: DefaultExpiry.
func (s Signs) How(now time.Time, expiry time.Duration) Way {
	switch {
	case s.Deleting:
		return Deleting
	case s.Tainted && !s.expired(now, expiry):
		return Removal
	case s.Disrupted:
		return Disrupted
	case s.Cordoned:
		return Cordoned
	default:
		return Not
	}
}

// Expired tells whether RemovalTaint is there and does not count any more.
func (s Signs) Expired(now time.Time, expiry time.Duration) bool {
	return s.Tainted && s.expired(now, expiry)
}

func (s Signs) expired(now time.Time, expiry time.Duration) bool {
	at, ok := s.Expires(expiry)
	return ok && !now.Before(at)
}

// Expires is when RemovalTaint stops to count. ok is false if it never does: there is none, or its time cannot be read,
// and who took it for an old one would take a node for safe that is about to be deleted.
func (s Signs) Expires(expiry time.Duration) (at time.Time, ok bool) {
	seconds, err := strconv.ParseInt(s.Taint, 10, 64)
	if !s.Tainted || err != nil {
		return time.Time{}, false
	}
	if expiry <= 0 {
		expiry = DefaultExpiry
	}
	return time.Unix(seconds, 0).UTC().Add(expiry), true
}

// Deadline is when Karpenter removes the node whatever its budgets say. ok is false if no such time can be read.
func (s Signs) Deadline() (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, s.Until)
	return at, err == nil
}

// Key is the key of the taint by which an autoscaler announces that it removes the node; "": there is none that counts.
func (s Signs) Key(now time.Time, expiry time.Duration) string {
	switch {
	case s.Tainted && !s.expired(now, expiry):
		return RemovalTaint
	case s.Disrupted:
		return DisruptedTaint
	default:
		return ""
	}
}
