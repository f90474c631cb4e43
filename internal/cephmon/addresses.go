package cephmon

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockkeeper/lockkeeper/api/v1alpha1"
	"github.com/lockkeeper/lockkeeper/internal/ceph"
	"github.com/lockkeeper/lockkeeper/internal/monplan"
)

// addressesOf are those of the mons of a monmap. A mon with several has the first of them.
func addressesOf(q ceph.QuorumStatus) (out []monplan.Address) {
	for _, mon := range q.MonMap.Mons {
		for _, a := range mon.Public.Addresses {
			if ip := ipOf(a.Address); ip != "" {
				out = append(out, monplan.Address{Mon: mon.Name, IP: ip})
				break
			}
		}
	}
	return out
}

// ipOf is the address without its port, and what may stand before it: "10.0.0.1" of "[v2:10.0.0.1:3300,v1:…]"; "": it
// has none.
func ipOf(address string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(address, "["), ",")
	first = strings.TrimPrefix(strings.TrimPrefix(first, "v1:"), "v2:")
	at, err := netip.ParseAddrPort(first)
	if err != nil {
		return ""
	}
	return at.Addr().String()
}

// lastAddresses are the addresses of mons, and those that rest, as the status has them.
func (w *world) lastAddresses() (out []monplan.Address) {
	for _, left := range w.cephMon.Status.LeftAddresses {
		out = append(out, monplan.Address{Mon: left.Mon, IP: left.IP, Left: left.Since.Time})
	}
	for _, m := range w.cephMon.Status.Mons {
		out = append(out, monplan.Address{Mon: m.Name, IP: ipOf(m.Address)})
	}
	return out
}

// leftAddresses are what the status keeps of those that rest.
func leftAddresses(s monplan.Seen) (out []v1alpha1.MonAddressLeft) {
	for _, a := range s.Addresses {
		if !a.Left.IsZero() {
			out = append(out, v1alpha1.MonAddressLeft{Mon: a.Mon, IP: a.IP, Since: *stamp(a.Left)})
		}
	}
	return out
}

// nodeIP is the address that a mon has on a node with hostNetwork; "": the node has none.
func nodeIP(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}
