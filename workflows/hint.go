package workflows

import "github.com/lockkeeper/lockkeeper/internal/budget"

// Hint is why the watcher thinks that the keeper should look. It decides nothing: the keeper looks for itself.
type Hint struct {
	Reason string `json:"reason"`
	// Own: it is lockkeeper's own doing.
	Own bool `json:"own,omitempty"`
	// Daemons: replicas of mgr, mds, rgw or rbd-mirror changed, or one of their budgets did.
	Daemons bool `json:"daemons,omitempty"`
	// Alarm: the pod of a storage daemon stopped serving. A keeper at rest closes first and looks afterwards.
	Alarm bool `json:"alarm,omitempty"`
	// Tampered: somebody else deleted or changed a budget that the keeper decides. It closes first and looks afterwards,
	// since the look may take long just then.
	Tampered bool `json:"tampered,omitempty"`
	// Disowned: the policy's status says that nobody keeps it up to date, and has to be written anew.
	Disowned bool `json:"disowned,omitempty"`
	// Echo, ProvedEcho and MonEcho are the generations of the budgets of the storage daemons without a mark, of those with
	// one, and of the mons when all that changed is that lockkeeper wrote them. The keeper knows of its own writes; it is
	// told all the same, since one that was believed lost may still have arrived.
	Echo       int64 `json:"echo,omitempty"`
	ProvedEcho int64 `json:"provedEcho,omitempty"`
	MonEcho    int64 `json:"monEcho,omitempty"`
}

// echo tells whether all that changed is what the keeper knows already: its writes up to those in the book.
func (h Hint) echo(b budget.Book) bool {
	return h.IsEcho() && h.Echo <= b[budget.Unmarked].Generation && h.ProvedEcho <= b[budget.Marked].Generation &&
		h.MonEcho <= b[budget.OfMons].Generation
}

// IsEcho tells whether all that changed is what lockkeeper wrote.
func (h Hint) IsEcho() bool { return h.Echo > 0 || h.ProvedEcho > 0 || h.MonEcho > 0 }
