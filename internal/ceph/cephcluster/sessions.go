package cephcluster

import (
	"slices"

	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/failuredomain"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// mostExamples is how many daemons a message names.
const mostExamples = 3

// disconnected says in which failure domains the OSDs are that have lost the monitors; nil: there are none.
func disconnected(d ceph.Disconnected, tree *failuredomain.Tree, domainType string) *storage.Disconnected {
	if d.Some() == 0 {
		return nil
	}
	out := &storage.Disconnected{Daemons: d.Some(), Presumed: len(d.Presumed), Why: d.Why}
	if d.Unnamed > 0 {
		if d.Unsure {
			out.Presumed = d.Unnamed
		}
		return out
	}
	examples := d.OSDs // nobody needs to know of another one that may be well in a moment
	if len(examples) == 0 {
		examples = d.Presumed
	}
	for _, id := range examples[:min(len(examples), mostExamples)] {
		out.Examples = append(out.Examples, named(id, domainType, tree.Find(id, domainType)))
	}
	for _, id := range slices.Concat(d.OSDs, d.Presumed) {
		if domain := tree.Find(id, domainType); !slices.Contains(out.Domains, domain) {
			out.Domains = append(out.Domains, domain)
		}
	}
	slices.Sort(out.Domains)
	return out
}

// named is an OSD and where it is: "osd.3 in zone-y".
func named(id int, domainType, domain string) string {
	name := ceph.OSDName(id)
	if domainType != failuredomain.OSDType && domain != "" {
		name += " in " + domain
	}
	return name
}
