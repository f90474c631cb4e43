package storageview

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
)

// shape is a short hash of what a proof that the data is clean relies on besides the OSDs' ups and downs: the pools,
// how they are spread, and which OSDs there are. 12 hexadecimal digits.
func shape(m *ceph.OSDMap, domainType string) string {
	h := sha256.New()
	// Any change of the CRUSH map may have moved an OSD to another failure domain.
	fmt.Fprintf(h, "type %s crush %s\n", domainType, m.CrushDigest)
	pools := slices.Clone(m.Pools)
	slices.SortFunc(pools, func(a, b ceph.Pool) int { return cmp.Compare(a.ID, b.ID) })
	for _, p := range pools {
		fmt.Fprintf(h, "pool %d %d %d %d\n", p.ID, p.Size, p.MinSize, p.Rule)
	}
	ids := make([]int, 0, len(m.OSDs))
	for i := range m.OSDs {
		if m.OSDs[i].Is("exists") {
			ids = append(ids, m.OSDs[i].ID)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		fmt.Fprintf(h, "osd %d\n", id)
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}
