package storageview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// osd is one OSD of Ceph's map with all that is known of it.
type osd struct {
	*ceph.OSD
	pods     []*Pod
	pod      storage.PodState // of all its pods together
	departed int64            // the map's epoch when its pod was last seen leaving; 0: it has come back since
	expected bool             // to serve
	domain   string           // "": in none
	host     string           // its CRUSH host
	node     *node            // nil: not known
}

func (o *osd) daemon() storage.Daemon {
	d := storage.Daemon{Name: o.Name(), Up: bool(o.Up), Pod: o.pod, Restarting: o.restarting()}
	if !d.Up {
		d.DownAt = o.DownAt
	}
	if o.node != nil {
		d.Node = o.node.Name
	}
	return d
}

// troubled tells whether there is something to say about the OSD. One without any pod is judged by Ceph alone.
func (o *osd) troubled() bool {
	return !bool(o.Up) || o.restarting() || o.pod != storage.PodReady && o.pod != storage.PodNone
}

// Departed is View.Departed when Ceph does not answer: the pods tell all the same who is leaving. lastChange is the
// ChangeEpoch of the last View. A pod that ends beside one that is ready is nobody's departure here either: it may be a
// copy, or linger long after its daemon has come back in the other one, and then nobody would ever see that daemon in a
// later life. If its daemon ends with it all the same, nothing opens before the one in the other pod has given a sign
// of life: everybody has to after a silence.
func Departed(pods []Pod, before map[string]int64, lastChange int64) map[string]int64 {
	out := maps.Clone(before)
	podsOf := map[int][]*Pod{}
	for i := range pods {
		if p := &pods[i]; p.OSD != NoOSD {
			podsOf[p.OSD] = append(podsOf[p.OSD], p)
		}
	}
	for id, all := range podsOf {
		if !bestState(all).Leaving() {
			continue
		}
		if out == nil {
			out = map[string]int64{}
		}
		out[ceph.OSDName(id)] = max(out[ceph.OSDName(id)], lastChange)
	}
	return out
}

// depart remembers when the OSD's pod was last seen leaving. A process that started since then has a later life in the
// map. The time is that of the View before: the map of this one was read beside the pods, and may know more than they.
func (o *osd) depart(before, lastChange int64) {
	switch {
	case o.pod.Leaving():
		o.departed = max(before, lastChange)
	case bool(o.Up) && o.UpFrom <= before:
		o.departed = before
	}
}

// restarting: its pod left, and is gone or there again, but the map does not know of either. A bare pod leaves nothing
// behind that would be pending. One whose pod nobody saw leave is judged by Ceph alone.
func (o *osd) restarting() bool {
	return bool(o.Up) && o.departed > 0 && !o.pod.Leaving()
}

// join finds for each OSD of the map its pods, its failure domain and its node. The OSDs are in the order of their
// numbers.
func join(in Input, domainType string, problems *problems) ([]*osd, *nodes) {
	podsOf := make(map[int][]*Pod, len(in.Pods))
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.OSD < 0 {
			problems.add("no label "+in.IDLabel+" with the number of an OSD, though the selector takes them for OSDs: pods ",
				pod.Name)
			continue
		}
		podsOf[pod.OSD] = append(podsOf[pod.OSD], pod)
	}
	all := make([]osd, len(in.Map.OSDs))
	osds := make([]*osd, len(all))
	known := make(map[int]bool, len(all))
	for i := range all {
		o := &all[i]
		o.OSD = &in.Map.OSDs[i]
		o.pods = podsOf[o.ID]
		o.pod = bestState(o.pods)
		o.depart(in.Departed[o.Name()], in.LastChange)
		o.expected = expected(o)
		o.domain = in.Tree.Find(o.ID, domainType)
		o.host = in.Tree.Find(o.ID, in.Tree.HostType())
		osds[i] = o
		known[o.ID] = true
	}
	slices.SortFunc(osds, func(a, b *osd) int { return cmp.Compare(a.ID, b.ID) })

	nodes := newNodes(in.Nodes)
	nodes.place(osds)
	checkOSDs(in, osds, domainType, problems)
	checkStrays(in, known, problems)
	return osds, nodes
}

// bestState is the state of an OSD's pods together: while a pod is replaced there is an old and a new one, and the OSD
// runs if one of them does.
func bestState(pods []*Pod) storage.PodState {
	for _, state := range []storage.PodState{
		storage.PodReady, storage.PodNotReady, storage.PodPending,
		storage.PodTerminating,
	} {
		for _, pod := range pods {
			if pod.State == state {
				return state
			}
		}
	}
	return storage.PodNone
}

// expected tells whether an OSD is one that the cluster relies on. A new one that never came up is not, nor one whose
// disk was destroyed, nor one under replacement, unless that still serves in full.
func expected(o *osd) bool {
	if !o.Serving() {
		return false
	}
	if bool(o.Up) && o.pod == storage.PodReady {
		return true
	}
	return !slices.ContainsFunc(o.pods, func(p *Pod) bool { return p.replacing() })
}

// checkOSDs finds what about the OSDs does not fit together.
func checkOSDs(in Input, osds []*osd, domainType string, problems *problems) {
	for _, o := range osds {
		var ready []string
		for _, pod := range o.pods {
			if pod.State == storage.PodReady {
				ready = append(ready, pod.Name)
			}
		}
		slices.Sort(ready)
		switch {
		case !o.expected && len(ready) > 0:
			problems.add("ready pods of OSDs that do not serve, which a budget would count as if they did: ", o.pods[0].Name)
		case len(ready) > 1:
			problems.add("more than one ready pod, of which one has to go (`lockkeeper restart pod/NAME --now --reason ...`): ",
				fmt.Sprintf("%s (%s)", o.Name(), strings.Join(ready, ", ")))
		}
		switch {
		case !o.expected:
		case !in.Tree.Located(o.ID):
			problems.add("under no root of the CRUSH map: ", o.Name())
		case o.domain == "" && len(in.Tree.FindAll(o.ID, domainType)) > 1:
			problems.add("in several "+domainType+"s of the CRUSH map at once: ", o.Name())
		case o.domain == "":
			problems.add("in no "+domainType+" of the CRUSH map: ", o.Name())
		}
	}
}

// checkStrays finds ready pods of OSDs that Ceph's map does not have: a budget would count them as if they served.
func checkStrays(in Input, known map[int]bool, problems *problems) {
	for _, pod := range in.Pods {
		if pod.OSD >= 0 && !known[pod.OSD] && pod.State == storage.PodReady {
			problems.add("ready pods of OSDs that do not exist: ", pod.Name)
		}
	}
}
