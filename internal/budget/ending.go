package budget

import "time"

// Ending is how a policy that is deleted ends.
type Ending struct {
	// Gone: there is no such object any more, although nothing was undone: somebody took the finalizer away.
	Gone bool `json:"gone,omitempty"`
	// Leave: a person says, by an annotation, that what cannot be undone is to be left behind.
	Leave bool `json:"leave,omitempty"`
	// NamespaceGoes: the namespace is deleted as well. Rights, Secrets and the mons' pods in it go in any order, and none
	// comes back.
	NamespaceGoes bool `json:"namespaceGoes,omitempty"`
}

// namespacePatience is how long what is to be undone is tried after the deletion of its namespace was seen. The
// connection to Ceph is often still there when its Secret is gone.
const namespacePatience = time.Minute

// GivesUp says why what could not be undone until now is left behind; "" when it is to be tried again.
func (e Ending) GivesUp(tried time.Duration) string {
	switch {
	case e.Gone:
		return "the policy's finalizer was taken away, and with the policy nobody knows how to reach the storage cluster"
	case e.Leave:
		return "a person wants it left behind"
	case e.NamespaceGoes && tried >= namespacePatience:
		return "the namespace is deleted, and with it what it takes"
	default:
		return ""
	}
}
