package storageview

import (
	"slices"
	"strings"

	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// FindHosts tells which hosts the tree has, under the names that they have now, and which it lacks. A tree without any
// bucket is no answer: nothing is gone then.
//
// A name that a record has with another ID than the tree is that of another bucket. The one of the record is gone.
func FindHosts(tree *failuredomain.Tree, asked []storage.Host) (found, gone []storage.Host) {
	if tree.Empty() {
		return nil, nil
	}
	for _, h := range asked {
		if strings.HasPrefix(h.Name, "osd.") {
			continue // an OSD is never renamed, and to unset a flag of one that is gone is no error
		}
		now := storage.Host{ID: h.ID}
		if h.ID == 0 {
			now.ID = tree.BucketID(h.Name)
		}
		if now.Name = tree.BucketName(now.ID); now.Name == "" {
			gone = append(gone, h)
		} else if !slices.Contains(found, now) {
			found = append(found, now)
		}
	}
	return found, gone
}

// hostsOf are the CRUSH hosts of some nodes, as they are called now: a claim may name them as they were called once.
func hostsOf(names []string, nodes []storage.Node) (out []storage.Host) {
	for _, n := range nodes {
		if !interested(names, n.Name) {
			continue
		}
		for _, host := range n.CrushHosts() {
			out = append(out, storage.Host{Name: host})
		}
	}
	return out
}
