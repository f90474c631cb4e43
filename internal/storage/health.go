package storage

import (
	"fmt"
	"strings"
	"time"
)

// Health is a judgement of the data, made over time by somebody who kept watching: a single look cannot tell a clean
// cluster from a manager that has not noticed yet.
type Health struct {
	// Fresh: every serving daemon has reported to an active manager since the map's last change, so that what follows
	// speaks of the cluster as it is and not as it was.
	Fresh bool `json:"fresh"`
	// Clean: all placement groups are in a healthy state. Counts only when Fresh.
	Clean       bool   `json:"clean"`
	ChangeEpoch int64  `json:"changeEpoch"` // the View.ChangeEpoch that it judges
	Placement   string `json:"placement,omitempty"`
	Reason      string `json:"reason,omitempty"` // why not fresh or not clean
	PGs         int    `json:"pgs"`
	PGsClean    int    `json:"pgsClean"`
	// Unexplained lists PG states that the loss of one failure domain does not explain (inconsistent, incomplete, …).
	Unexplained []string `json:"unexplained,omitempty"`
	// Moving: copies are being moved or made, so that what the cluster says of who may stop holds for this moment only.
	Moving bool `json:"moving,omitempty"`
	// ButDisconnected: it would be Clean, but for daemons that are up and that the governors do not hear.
	ButDisconnected bool `json:"butDisconnected,omitempty"`
	// NoManager: none is active, so that nobody hears the daemons' reports. It is never Fresh then.
	NoManager bool `json:"noManager,omitempty"`
}

// Life is the answer to the question which daemons give a sign of life: of those that the storage cluster's map calls
// up.
type Life struct {
	// Outside is the failure domain whose daemons do not matter to the question; zero: all matter.
	Outside FailureDomain `json:"outside,omitzero"`
	// Silent is how many gave none since the question was asked, although others gave several.
	Silent   int      `json:"silent,omitempty"`
	Examples []string `json:"examples,omitempty"` // a few of them: "osd.3 in zone-y"
	// Meanwhile is what else went on and may be why they gave none; "" for nothing.
	Meanwhile string `json:"meanwhile,omitempty"`
	// Unproven is why nobody could tell, for so long that the storage cluster's map has to do; "" when it was proved.
	Unproven string `json:"unproven,omitempty"`
}

// Covers tells whether the answer says of every daemon outside a failure domain that it lives.
func (l *Life) Covers(d FailureDomain) bool {
	return l != nil && l.Silent == 0 && (l.Outside.IsZero() || l.Outside == d)
}

// String says who is silent; "" for nobody.
func (l *Life) String() string {
	if l == nil || l.Silent == 0 {
		return ""
	}
	text := strings.Join(l.Examples, ", ")
	if more := l.Silent - len(l.Examples); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	text = "no sign of life from " + text + ", up in the storage cluster's map all the same"
	if l.Meanwhile != "" {
		text += "; meanwhile " + l.Meanwhile
	}
	return text
}

// CleanProof remembers that the data was whole as of an epoch. Whatever happened since then happened on top of it.
type CleanProof struct {
	ChangeEpoch int64     `json:"changeEpoch"`
	Shape       string    `json:"shape"`
	At          time.Time `json:"at"`
	Awaited     []string  `json:"awaited,omitempty"` // as in View: the data was whole without them
}

// Marks is what one look found of the marks on the storage daemons' pods. A mark is a label that lockkeeper alone sets,
// on a pod whose daemon was proved to serve while all data was whole. It names that very pod, so that no later pod can
// have it. Two budgets split the pods by it: those without a mark stay, whatever happens.
type Marks struct {
	// Proved are ready pods of daemons that serve, with a mark that names the pod.
	Proved int `json:"proved,omitempty"`
	// Unproved are ready pods of daemons that serve, without such a mark. They are marked when the data is proved whole.
	Unproved int `json:"unproved,omitempty"`
	// Stale are pods with a mark that has to go before a budget counts them: they are not ready, or their daemon does not
	// serve.
	Stale int `json:"stale,omitempty"`
	// Foreign are a few of the pods whose mark names another pod: somebody copied it, or it is in the template of their
	// workload.
	Foreign []string `json:"foreign,omitempty"`
	// Mixed: some pods have a controller and some have none.
	Mixed bool `json:"mixed,omitempty"`
}
