package storageview_test

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/ceph/storageview"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// world is a cluster of zones × hosts × OSDs in which all is well, for a test to break. OSD numbers go host by host:
// with two OSDs on a host, osd.0 and osd.1 are on node-0 in zone-0.
type world struct {
	crush *ceph.CrushMap
	input storageview.Input
}

const rootID = -1

type size struct{ zones, hosts, osds int }

// newWorld has one pool of size 3, min_size 2, with one copy in each zone. All OSDs went up at epoch 10.
func newWorld(s size) *world {
	w := &world{crush: &ceph.CrushMap{
		Types: []ceph.CrushType{{ID: 0, Name: "osd"}, {ID: 1, Name: "host"}, {ID: 9, Name: "zone"}, {ID: 11, Name: "root"}},
	}}
	m := &ceph.OSDMap{Epoch: 20, Pools: []ceph.Pool{{ID: 1, Name: "rbd", Size: 3, MinSize: 2, PGNum: 32}}}
	w.input = storageview.Input{
		At: time.Unix(1000, 0).UTC(), Map: m, IDLabel: "ceph-osd-id", FailureDomainLabel: "topology-location-{type}",
	}
	w.spreadOver("zone")
	bucketID, root := -1, ceph.CrushBucket{ID: rootID, Name: "default", TypeID: 11}
	add := func(b ceph.CrushBucket) int {
		bucketID--
		b.ID = bucketID
		w.crush.Buckets = append(w.crush.Buckets, b)
		return b.ID
	}
	for z := range s.zones {
		zone := ceph.CrushBucket{Name: fmt.Sprintf("zone-%d", z), TypeID: 9}
		for h := range s.hosts {
			node := fmt.Sprintf("node-%d", z*s.hosts+h)
			w.input.Nodes = append(w.input.Nodes, storageview.Node{Name: node})
			host := ceph.CrushBucket{Name: node, TypeID: 1}
			for range s.osds {
				id := len(m.OSDs)
				m.OSDs = append(m.OSDs, ceph.OSD{
					ID: id, Up: true, In: true, Weight: 1, UpFrom: 10,
					State: []string{"exists", "up"},
				})
				w.input.Pods = append(w.input.Pods, newPod(id, node, zone.Name))
				appendItem(&host, id)
			}
			appendItem(&zone, add(host))
		}
		appendItem(&root, add(zone))
	}
	w.crush.Buckets = append(w.crush.Buckets, root)
	return w
}

func newPod(id int, node, zone string) storageview.Pod {
	return storageview.Pod{
		Name: fmt.Sprintf("rook-ceph-osd-%d", id), OSD: id, State: storage.PodReady, Node: node,
		Labels: map[string]string{
			"ceph-osd-id": strconv.Itoa(id), "topology-location-host": strings.ReplaceAll(node, ".", "-"),
			"topology-location-zone": zone,
		},
	}
}

func appendItem(b *ceph.CrushBucket, id int) {
	b.Items = append(b.Items, struct {
		ID int `json:"id"`
	}{id})
}

// spreadOver makes all pools choose from buckets of a type.
func (w *world) spreadOver(typeName string) {
	w.crush.Rules = []ceph.CrushRule{{Name: "rule", Steps: []ceph.CrushStep{
		{Op: "take", Item: rootID}, {Op: "chooseleaf_firstn", Type: typeName}, {Op: "emit"},
	}}}
}

func (w *world) osd(id int) *ceph.OSD         { return &w.input.Map.OSDs[id] }
func (w *world) pod(id int) *storageview.Pod  { return &w.input.Pods[id] }
func (w *world) node(n int) *storageview.Node { return &w.input.Nodes[n] }
func (w *world) bucket(name string) *ceph.CrushBucket {
	for i := range w.crush.Buckets {
		if w.crush.Buckets[i].Name == name {
			return &w.crush.Buckets[i]
		}
	}
	return nil
}

// addPDU adds a PDU with hosts that are in the tree already.
func (w *world) addPDU(id int, name string, hosts ...string) {
	pdu := ceph.CrushBucket{ID: id, Name: name, TypeID: 5}
	for _, host := range hosts {
		appendItem(&pdu, w.bucket(host).ID)
	}
	w.crush.Buckets = append(w.crush.Buckets, pdu)
}

// stop takes an OSD down in Ceph, at an epoch.
func (w *world) stop(id int, epoch int64) {
	o := w.osd(id)
	o.Up, o.DownAt, o.State = false, epoch, []string{"exists"}
}

// evict makes an OSD's pod one that waits to be scheduled on its node.
func (w *world) evict(id int) { w.pod(id).State = storage.PodPending }

// deleteNode deletes the Node object; its pods keep the name.
func (w *world) deleteNode(n int) {
	w.input.Nodes = append(w.input.Nodes[:n:n], w.input.Nodes[n+1:]...)
}

// deletePod deletes an OSD's pod. Afterwards pod() is off by one for those after it.
func (w *world) deletePod(id int) {
	w.input.Pods = append(w.input.Pods[:id:id], w.input.Pods[id+1:]...)
}

func (w *world) view() storage.View {
	w.input.Tree = failuredomain.NewTree(w.crush)
	return storageview.Build(w.input)
}
