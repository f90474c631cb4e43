package sim

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
)

// This file is the hosts of the CRUSH map: buckets, which people rename and remove, as they do with those of nodes that
// get another name or another place.

// crushHosts are the buckets of type host. Every node with OSDs has one.
type crushHosts struct {
	byNode  map[string]*crushHost
	version int64                // of the CRUSH map
	last    int                  // the id that was given last
	flagged map[string]time.Time // when a person last set noout
	claimed map[string]bool      // since then lockkeeper told that it takes it for its own
}

// crushHost is a bucket. Its id stays when it is renamed, and so does its noout.
type crushHost struct {
	id   int
	name string
}

// firstHost is the first id of a host, smaller than those of zones and of the root.
const firstHost = -100

func (w *World) addHost(node string) {
	w.hosts.version++
	w.hosts.last--
	w.hosts.byNode[node] = &crushHost{id: firstHost + w.hosts.last, name: node}
}

// hostName is how the CRUSH map calls a node's host. An OSD is called what it is called.
func (w *World) hostName(node string) string {
	if h := w.hosts.byNode[node]; h != nil {
		return h.name
	}
	return node
}

// group applies a command about CRUSH nodes. As Ceph does, it refuses when it knows none of the names, and passes over
// single ones that it does not know.
func (w *World) group(who []string, apply func(string)) error {
	known := false
	for _, name := range who {
		if strings.HasPrefix(name, "osd.") {
			known = true
			apply(name)
		}
		for _, node := range w.names {
			if h := w.hosts.byNode[node]; h != nil && h.name == name {
				known = true
				apply(node)
			}
		}
	}
	if !known {
		return refusal(syscall.EINVAL)
	}
	return nil
}

// recordOn is what lockkeeper has written down about noout on a host: under its name, or under the one that it had when
// it was written down.
func (w *World) recordOn(host string) *v1alpha1.NooutStatus {
	records := w.records()
	h := w.hosts.byNode[host]
	i := slices.IndexFunc(records, func(n v1alpha1.NooutStatus) bool {
		return (n.Host == host || h != nil && (n.Host == h.name || n.HostID == h.id)) && (!n.Withdrawn || n.Until != nil)
	})
	if i < 0 {
		return nil
	}
	return &records[i]
}

// noteClaimed takes note of the host that lockkeeper says it takes the noout of for its own.
func (w *World) noteClaimed(message string) {
	for _, node := range w.names {
		if strings.Contains(message, " host "+w.hostName(node)+" ") {
			w.hosts.claimed[node] = true
		}
	}
	for _, o := range w.osds {
		if strings.Contains(message, " host "+o.name()+" ") {
			w.hosts.claimed[o.name()] = true
		}
	}
}

// lookTakes is how long a look of lockkeeper may take, at whose end it writes down what it is about to set.
const lookTakes = 10 * time.Second

// shared tells whether a person set noout on a host when lockkeeper had looked and was about to set it, too. Ceph keeps
// one flag, without an owner, and nobody can tell the two apart. Then it is enough to have told.
func (w *World) shared(host string) bool {
	r := w.recordOn(host)
	return r != nil && w.hosts.claimed[host] && w.hosts.flagged[host].After(r.Since.Add(-lookTakes))
}

// RenameHost is a person who gives a node's host in the CRUSH map another name, or the one back that it had:
// rename-bucket. The flag goes along.
func (w *World) RenameHost(node string) {
	w.happens(func() {
		h := w.hosts.byNode[node]
		if h == nil {
			return // without OSDs
		}
		if old, renamed := strings.CutPrefix(h.name, "new-"); renamed {
			h.name = old
		} else {
			h.name = "new-" + h.name
		}
		w.reshaped("a person renames the CRUSH host of %s: it is %s now", node, h.name)
	})
}

// ReplaceHost is a person who moves the OSDs of a node to another bucket and removes the one that they were in, and
// with it its flag.
func (w *World) ReplaceHost(node string) {
	w.happens(func() {
		if w.hosts.byNode[node] == nil {
			return
		}
		w.hosts.last--
		w.hosts.byNode[node] = &crushHost{id: firstHost + w.hosts.last, name: fmt.Sprintf("%s-%d", node, -w.hosts.last)}
		delete(w.noout, node)
		w.reshaped("a person moves the OSDs of %s to the CRUSH host %s and removes the old one", node, w.hostName(node))
	})
}

func (w *World) reshaped(format string, args ...any) {
	w.tell(format, args...)
	w.hosts.version++
	w.epoch++
	w.broadcast()
}
