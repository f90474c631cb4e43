package kubelet

import (
	"fmt"
	"sync"
)

// hostIP is the address of every node, and of pods on the host network.
const hostIP = "127.0.0.1"

// addresses hands out the loopback addresses of pods. Each instance of the lab has a /16 of its own in 127.64.0.0/10.
type addresses struct {
	second int // second byte

	mu   sync.Mutex
	last int
	used map[int]bool
}

func newAddresses(instance int) *addresses {
	return &addresses{second: 64 + instance%64, used: map[int]bool{}}
}

// take gives an address that was not used for as long as possible, so that nobody mistakes a new pod for an old one.
func (a *addresses) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		a.last = a.last%65534 + 1
		if !a.used[a.last] {
			a.used[a.last] = true
			return fmt.Sprintf("127.%d.%d.%d", a.second, a.last>>8, a.last&255)
		}
	}
}

func (a *addresses) release(ip string) {
	var second, third, fourth int
	if _, err := fmt.Sscanf(ip, "127.%d.%d.%d", &second, &third, &fourth); err != nil || second != a.second {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.used, third<<8+fourth)
}
