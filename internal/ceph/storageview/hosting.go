package storageview

import (
	"github.com/lockkeeper/lockkeeper/internal/fencing"
)

// Hosting is what each node hosts, whether or not there is anything to say about it. homeless tells that an OSD is up
// although its pod has gone and no node of it is known: it may be on any.
func Hosting(in Input) (hosted map[string]fencing.Hosted, homeless bool) {
	var ignored problems // Build tells of them
	smallest, _ := failureDomain(in, &ignored)
	osds, nodes := join(in, smallest.Type, &ignored)
	hosted = map[string]fencing.Hosted{}
	domains := map[string]string{} // by node
	for _, o := range osds {
		switch {
		case !o.expected:
		case o.node != nil:
			h := hosted[o.node.Name]
			h.Daemons++
			first, had := domains[o.node.Name]
			domains[o.node.Name] = o.domain
			h.Spread = h.Spread || had && first != o.domain
			if o.Up {
				h.Running++
			}
			hosted[o.node.Name] = h
		case bool(o.Up) && o.departed > 0:
			homeless = true
		}
	}
	for _, m := range describeMons(in.Mons, nodes) {
		if m.Node != "" && m.InQuorum {
			h := hosted[m.Node]
			h.Mon++
			hosted[m.Node] = h
		}
	}
	return hosted, homeless
}

// HostingByPods is what each node hosts as far as pods tell, while the storage cluster says nothing: whatever has not
// ended may serve.
func HostingByPods(pods []Pod, mons []MonPod) map[string]fencing.Hosted {
	hosted := map[string]fencing.Hosted{}
	for _, p := range pods {
		if p.OSD != NoOSD && p.Node != "" {
			h := hosted[p.Node]
			h.Daemons, h.Running = h.Daemons+1, h.Running+1
			hosted[p.Node] = h
		}
	}
	for _, m := range mons {
		if m.Mon != "" && m.Node != "" {
			h := hosted[m.Node]
			h.Mon++
			hosted[m.Node] = h
		}
	}
	return hosted
}
