package workflows

import (
	"github.com/lockkeeper/lockkeeper/internal/flags"
	"github.com/lockkeeper/lockkeeper/internal/guard"
	"github.com/lockkeeper/lockkeeper/internal/guard/cephguard"
	"github.com/lockkeeper/lockkeeper/internal/guard/longhornguard"
	"github.com/lockkeeper/lockkeeper/internal/storage"
)

// guards has one for each kind of storage.
var guards = map[storage.Kind]guard.Guard{storage.Ceph: cephguard.Guard{}, storage.Longhorn: longhornguard.Guard{}}

// guard is that of the kind of storage that was seen last. Where this version does not know it, any will do: nothing
// counts that was seen, so that each closes.
func (m *mind) guard() guard.Guard {
	if g := guards[m.state.Kind]; g != nil {
		return g
	}
	return guards[storage.Ceph]
}

// flagKind is what the storage calls its flag. Where it has none, what is recorded is of a policy of this name that was
// of another kind before.
func (m *mind) flagKind() flags.Kind {
	if kind := m.guard().Flag(); kind.Name != "" {
		return kind
	}
	return guards[storage.Ceph].Flag()
}
