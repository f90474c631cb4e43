package podspec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/lockkeeper/lockkeeper/api/ceph/v1alpha1"
)

// Classified is every pod of a CephOSD in the one list where it belongs, sorted by OSD and name, and the OSDs that have
// none.
type Classified struct {
	// One pod for each of their OSDs, all of which the spec wants.
	UpToDate, OutOfDate, Ready, Unready []Pod
	// Missing are OSDs without any pod, not even one that is invalid, terminates, or is foreign, and has their device or
	// their pod's name. Only they may get a pod.
	Missing []OSD
	// Pods that are no OSD's that the spec wants, or should not be.
	Invalid, Superfluous, Terminating, Foreign []Pod

	// NotReady are the pods of OutOfDate, Unready and UpToDate that are not ready in Kubernetes, and that nobody overrode:
	// an OSD that was released may crash as well.
	NotReady []Pod
	// Disowned are those of our pods whose owner references are not what the deletion policy asks for.
	Disowned []Pod
	// Busy are OSDs, by key, of whose devices another OSD's pod still has one, and why: their own must not start before
	// that one is gone. A DB that moves from one OSD to another has two users while only one of them was updated. Holders
	// are those pods, all of them.
	Busy    map[string]string
	Holders map[string][]Holder
	// Identified says, by the name of a pod, which OSD it is.
	Identified map[string]OSD
}

// Classify sorts the pods that have the owner label of the CephOSD; desired is what Desired says. In this order:
//
//   - terminating: not judged, but there;
//   - somebody else's, namely controlled by what is no CephOSD, or without any annotation of ours: foreign;
//   - nobody knows which OSD it is, see Identify: foreign as long as it may have a device, invalid otherwise;
//   - its OSD is not in the spec: superfluous;
//   - it has ended: invalid;
//   - another pod of its OSD is better: invalid. Better is who is ready, then who has all annotations, then who has the
//     right name, then who is older;
//   - without one of the annotations host, data, pod-template-hash, or with the wrong name: invalid;
//   - its hash is not that of the template, or its DB or WAL not that of the spec: out-of-date;
//   - it was not released: ready or unready, as Kubernetes says;
//   - else up-to-date.
func (s Set) Classify(desired []OSD, pods []*corev1.Pod) Classified {
	c := &classifier{
		set: s, wanted: map[string]OSD{}, held: map[string]bool{}, rivals: map[string][]Pod{},
		names: map[string]string{},
	}
	for _, o := range desired {
		c.wanted[o.Key()] = o
		c.names[PodName(o)] = o.Key()
	}
	c.out.Identified = Identify(desired, pods)
	for _, pod := range pods {
		o, known := c.out.Identified[pod.Name]
		if !known {
			o = osdOf(pod)
		}
		c.judge(Pod{Pod: pod, OSD: o, Ready: podutils.IsPodReady(pod)})
	}
	for key, rivals := range c.rivals {
		c.decide(c.wanted[key], rivals)
	}
	for _, o := range desired {
		if !c.held[o.Key()] {
			c.out.Missing = append(c.out.Missing, o)
		}
	}
	for _, list := range []*[]Pod{
		&c.out.UpToDate, &c.out.OutOfDate, &c.out.Ready, &c.out.Unready, &c.out.Invalid, &c.out.Superfluous,
		&c.out.Terminating, &c.out.Foreign, &c.out.NotReady, &c.out.Disowned,
	} {
		slices.SortFunc(*list, func(a,
			b Pod,
		) int {
			return cmp.Or(cmp.Compare(a.OSD.Key(), b.OSD.Key()), cmp.Compare(a.Name, b.Name))
		})
	}
	slices.SortFunc(c.out.Missing, func(a, b OSD) int { return cmp.Compare(a.Key(), b.Key()) })
	c.out.Holders, c.out.Busy = Holders(desired, c.out.Identified, pods), map[string]string{}
	for key, held := range c.out.Holders {
		c.out.Busy[key] = held[0].Why
	}
	return c.out
}

type classifier struct {
	set    Set
	wanted map[string]OSD
	names  map[string]string // of the pods that wanted OSDs should have → key
	held   map[string]bool   // keys of OSDs that have a pod of any kind
	rivals map[string][]Pod  // the pods of each wanted OSD of which one may stay
	out    Classified
}

// judge sorts a pod by what can be told from it alone.
func (c *classifier) judge(p Pod) {
	if p.known() {
		c.held[p.OSD.Key()] = true
	}
	_, wanted := c.wanted[p.OSD.Key()]
	if namesake, named := c.names[p.Name]; named {
		c.held[namesake] = true
	}
	switch other := controlledByOther(p.Pod, v1alpha1.Kind); {
	case p.DeletionTimestamp != nil:
		c.put(p, Terminating, "")
	case other != nil:
		c.put(p, Foreign, fmt.Sprintf("%s %s looks after it", other.Kind, other.Name))
	case len(lacking(p.Pod)) == len(mandatory):
		c.put(p, Foreign, "it has none of the annotations of an OSD's pod")
	case !p.known() && !ended(p.Pod) && p.Spec.NodeName != "":
		c.put(p, Foreign, stray(p.Pod))
	case !p.known():
		c.put(p, Invalid, lacks(p))
	case !wanted:
		c.put(p, Superfluous, "spec.storage does not name "+p.OSD.Key())
	case ended(p.Pod):
		c.put(p, Invalid, strings.TrimSpace("it has ended: "+string(p.Status.Phase)+" "+p.Status.Reason))
	default:
		c.rivals[p.OSD.Key()] = append(c.rivals[p.OSD.Key()], p)
	}
}

// decide keeps one of the pods of an OSD, and judges that. It is the one that serves: an OSD locks its device, so of
// two the one that is ready, or else the one that has run for longer.
func (c *classifier) decide(o OSD, rivals []Pod) {
	slices.SortFunc(rivals, func(a, b Pod) int {
		return cmp.Or(
			first(a.Ready, b.Ready),
			longer(a.Pod, b.Pod),
			first(lacks(a) == "", lacks(b) == ""),
			first(rightName(a.Name, o), rightName(b.Name, o)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	})
	p := rivals[0]
	for _, other := range rivals[1:] {
		why := fmt.Sprintf("%s is a pod of %s already", p.Name, o.Key())
		if other.MayServe = !p.Ready && daemon(other.Pod) != nil; other.MayServe {
			why += ", neither is ready, and both run: which of them serves will show when one ends"
		}
		c.put(other, Invalid, why)
	}
	p.Serving = true
	outdated := c.set.outdated(o, p)
	switch {
	case lacks(p) != "":
		c.put(p, Invalid, lacks(p))
	case !rightName(p.Name, o):
		c.put(p, Invalid, fmt.Sprintf("its name should be %s", PodName(o)))
	case outdated != "":
		c.put(p, OutOfDate, outdated)
	case p.waits() && p.Ready:
		c.put(p, Ready, "")
	case p.waits():
		c.put(p, Unready, Trouble(p.Pod))
	default:
		p.Overridden = p.overridden()
		c.put(p, UpToDate, Trouble(p.Pod))
	}
}

// lacks says which annotations a pod must have and has not; "" if it may do without.
func lacks(p Pod) string {
	names := lacking(p.Pod)
	if len(names) == 0 || madeForReplicaSet(p) {
		return ""
	}
	return "it lacks " + strings.Join(names, " and ")
}

// first puts what is true before what is not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func (c *classifier) put(p Pod, state State, why string) {
	p.State, p.Why = state, why
	gates, ours := false, true
	switch state {
	case UpToDate:
		c.out.UpToDate, gates = append(c.out.UpToDate, p), true
	case OutOfDate:
		c.out.OutOfDate, gates = append(c.out.OutOfDate, p), true
	case Unready:
		c.out.Unready, gates = append(c.out.Unready, p), true
	case Ready:
		c.out.Ready = append(c.out.Ready, p)
	case Invalid:
		c.out.Invalid = append(c.out.Invalid, p)
	case Superfluous:
		c.out.Superfluous = append(c.out.Superfluous, p)
	case Terminating:
		c.out.Terminating, ours = append(c.out.Terminating, p), false
	case Foreign:
		c.out.Foreign, ours = append(c.out.Foreign, p), false
	case Missing: // no pod is
	}
	if gates && !p.Ready && !p.Overridden {
		c.out.NotReady = append(c.out.NotReady, p)
	}
	if ours && !c.set.owns(p.Pod) {
		c.out.Disowned = append(c.out.Disowned, p)
	}
}
