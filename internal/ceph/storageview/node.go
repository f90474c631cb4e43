package storageview

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// node is a Kubernetes node that hosts OSDs, or did.
type node struct {
	Node
	gone bool // the Node object is deleted
	osds []*osd
}

// leaving tells whether somebody announced, or already carried out, the disruption of this node.
func (n *node) leaving() bool { return n.Unschedulable || n.RemovalTaint != "" || n.gone }

// domain is the failure domain of its OSDs, the first by name if there are several; "" when it has none.
func (n *node) domain() string {
	var domains []string
	for _, o := range n.osds {
		if o.expected {
			domains = appendNew(domains, o.domain)
		}
	}
	if len(domains) == 0 {
		return ""
	}
	return slices.Min(domains)
}

// nodes finds nodes by the names that pods and CRUSH have for them.
type nodes struct {
	all    []*node
	byName map[string]*node // by name, hostname, and either as Rook writes it in CRUSH
	byHost map[string]*node // by CRUSH host, as pods showed it
}

func newNodes(input []Node) *nodes {
	ns := &nodes{byName: make(map[string]*node, 2*len(input)), byHost: map[string]*node{}}
	for _, n := range input {
		ns.all = append(ns.all, &node{Node: n})
	}
	// A node's own name comes before the names that others have for theirs.
	for _, name := range []func(*node) string{
		func(n *node) string { return n.Name },
		func(n *node) string { return n.Hostname },
		func(n *node) string { return crushName(n.Name) },
		func(n *node) string { return crushName(n.Hostname) },
	} {
		for _, n := range ns.all {
			if key := name(n); key != "" && ns.byName[key] == nil {
				ns.byName[key] = n
			}
		}
	}
	return ns
}

// crushName is a name as Rook writes it in CRUSH and in its labels: without dots.
func crushName(name string) string { return strings.ReplaceAll(name, ".", "-") }

// place puts each OSD on its node. First go the OSDs whose pods tell; they show which node is which CRUSH host, and
// that and the names place the rest.
func (ns *nodes) place(osds []*osd) {
	for _, o := range osds {
		if name := nodeName(o); name != "" {
			ns.put(o, ns.named(name))
			if o.host != "" && ns.byHost[o.host] == nil {
				ns.byHost[o.host] = o.node
			}
		}
	}
	for _, o := range osds {
		if o.node != nil || o.host == "" {
			continue
		}
		if n := ns.byHost[o.host]; n != nil {
			ns.put(o, n)
		} else if n := ns.byName[o.host]; n != nil {
			ns.put(o, n)
		}
	}
}

func (ns *nodes) put(o *osd, n *node) {
	o.node = n
	n.osds = append(n.osds, o)
}

// named finds a node by the name that a pod has for it. A pod outlives its Node object, so an unknown one is gone.
func (ns *nodes) named(name string) *node {
	if n := ns.byName[name]; n != nil {
		return n
	}
	n := &node{Node: Node{Name: name}, gone: true}
	ns.all = append(ns.all, n)
	ns.byName[name] = n
	return n
}

// nodeName is what an OSD's pods say about its node: the one in the best state first.
func nodeName(o *osd) string {
	name := ""
	for _, pod := range o.pods {
		if pod.Node == "" {
			continue
		}
		if pod.State == o.pod {
			return pod.Node
		}
		name = pod.Node
	}
	return name
}

// describeNodes describes the nodes about which there is something to say, in the order of their names.
func describeNodes(in Input, ns *nodes, domainType string, problems *problems) []storage.Node {
	var described []storage.Node
	for _, n := range ns.all {
		if d, ok := describeNode(n, domainType, problems); ok &&
			(d.Leaving() || d.NotReady || isTroubled(n) || interested(in.Interest.Nodes, n.Name)) {
			described = append(described, d)
		}
	}
	slices.SortFunc(described, func(a, b storage.Node) int { return strings.Compare(a.Name, b.Name) })
	return described
}

// describeNode describes a node that hosts OSDs; others are not ours to speak of.
func describeNode(n *node, domainType string, problems *problems) (storage.Node, bool) {
	d := storage.Node{
		Name: n.Name, Cordoned: n.Unschedulable, Tainted: n.RemovalTaint, Gone: n.gone, NotReady: n.NotReady,
	}
	var domains, hosts []string
	for _, o := range n.osds {
		if !o.expected {
			continue
		}
		d.Daemons = append(d.Daemons, o.Name())
		if bool(o.Up) && n.NotReady && !n.gone {
			d.Lost++
		}
		if o.daemon().Down() {
			d.Down = append(d.Down, o.Name())
		}
		domains = appendNew(domains, o.domain)
		hosts = appendNew(hosts, o.host)
	}
	slices.Sort(domains)
	slices.Sort(hosts)
	if len(domains) > 0 {
		d.Domain = domains[0]
	}
	if len(hosts) > 0 {
		d.Host = hosts[0]
	}
	if len(domains) > 1 {
		d.Domains = domains
		if domainType != osdType {
			problems.add("one node with OSDs of several failure domains ("+domainType+"s "+strings.Join(domains, ", ")+"): ",
				n.Name)
		}
	}
	if len(hosts) > 1 {
		d.Hosts = hosts
	}
	return d, len(d.Daemons) > 0
}

func isTroubled(n *node) bool {
	return slices.ContainsFunc(n.osds, func(o *osd) bool { return o.expected && o.troubled() })
}

func appendNew(names []string, name string) []string {
	if name == "" || slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}
