package instance

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strconv"
)

// An instance owns a block of ports. Blocks lie below the range from which Linux takes the ports of outgoing
// connections (32768 and up), because a client of another program could otherwise sit on a port of ours when we start.
const (
	blockSize  = 1000
	firstBlock = 10000
	lastBlock  = 31000

	maxMons = 50
)

// Ports is the block of loopback ports of one instance.
type Ports struct {
	Base int `json:"base"`
}

// The offsets are part of nothing: ask the methods.

func (p Ports) APIServer() int        { return p.Base }
func (p Ports) EtcdClient() int       { return p.Base + 1 }
func (p Ports) EtcdPeer() int         { return p.Base + 2 }
func (p Ports) Kubelet() int          { return p.Base + 4 }
func (p Ports) TemporalFrontend() int { return p.Base + 5 }
func (p Ports) TemporalUI() int       { return p.Base + 6 }
func (p Ports) TemporalMetrics() int  { return p.Base + 7 }
func (p Ports) TemporalInternal() int { return p.Base + 10 } // and the 20 after it

func (p Ports) ClusterAPIWebhook() int     { return p.Base + 40 }
func (p Ports) ClusterAPIHealth() int      { return p.Base + 41 }
func (p Ports) ClusterAPIDiagnostics() int { return p.Base + 42 }

func (p Ports) KarpenterHealth() int  { return p.Base + 43 }
func (p Ports) KarpenterMetrics() int { return p.Base + 44 }

// CephMon is the msgr2 port of the i-th mon that ever existed; there is room for mons that replace others.
func (p Ports) CephMon(i int) int { return p.Base + 100 + i }

// CephDaemons is the range from which OSDs and managers choose.
func (p Ports) CephDaemons() (first, last int) { return p.Base + 200, p.Base + blockSize - 1 }

// ServiceCIDR is the range of the addresses of Services. It is of the loopback network, so that the lab can serve
// there, and each instance has its own, beyond those of pods.
func (p Ports) ServiceCIDR() string {
	return fmt.Sprintf("127.%d.0.0/16", firstServiceNetwork+p.Network())
}

// ServiceAddress is the i-th address of that range, 1 to 255. Kubernetes takes the first for itself, and gives these
// only to Services that ask for one.
func (p Ports) ServiceAddress(i int) string {
	return fmt.Sprintf("127.%d.0.%d", firstServiceNetwork+p.Network(), i)
}

// firstServiceNetwork is the second byte of the first instance's Services. Pods have 64 to 127.
const firstServiceNetwork = 128

// guard is held by the supervisor as long as it lives. It makes claiming a block atomic between users with different
// folders, who cannot see each other's instances.
func (p Ports) guard() int { return p.Base + 3 }

// Loopback is the address of a port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// claimPorts finds a free block for an instance that has none yet and returns it with its guard. taken holds the blocks
// of other instances that exist, running or not. The search starts at a place derived from the instance's folder, so
// that two labs started at the same time rarely look at the same block.
func claimPorts(dir string, taken map[int]bool) (Ports, net.Listener, error) {
	count := (lastBlock-firstBlock)/blockSize + 1
	h := fnv.New32a()
	h.Write([]byte(dir))
	for i := range count {
		p := Ports{Base: firstBlock + (int(h.Sum32()%uint32(count))+i)%count*blockSize}
		if taken[p.Base] {
			continue
		}
		guard, err := p.claim()
		if err == nil {
			return p, guard, nil
		}
	}
	return Ports{}, nil, fmt.Errorf(
		"no free block of %d ports between %d and %d on 127.0.0.1: stop a lab (`lab status` lists yours)", blockSize,
		firstBlock, lastBlock+blockSize-1)
}

// claim takes the guard, and fails if any port of the block is in use.
func (p Ports) claim() (net.Listener, error) {
	guard, err := net.Listen("tcp", Loopback(p.guard()))
	if err != nil {
		return nil, err
	}
	for port := p.Base; port < p.Base+blockSize; port++ {
		if port == p.guard() {
			continue
		}
		l, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("port %d is in use: %w", port, err), guard.Close())
		}
		l.Close()
	}
	return guard, nil
}

// Network numbers the block, so that each instance can have its own range of pod addresses.
func (p Ports) Network() int { return (p.Base - firstBlock) / blockSize }
