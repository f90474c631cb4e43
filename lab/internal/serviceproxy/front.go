package serviceproxy

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// front is one port of a Service.
type front struct {
	listener net.Listener
	backends atomic.Pointer[[]string]
}

// serve accepts connections until the listener is closed.
func (f *front) serve(ctx context.Context) {
	for {
		conn, err := f.listener.Accept()
		if err != nil {
			return
		}
		go f.pass(ctx, conn.(*net.TCPConn))
	}
}

// connectTimeout is for a pod that hangs with a full queue.
const connectTimeout = 10 * time.Second

// pass connects a client with a pod. The client of a pod that does not serve is cut off at once: a refusal is what it
// would have seen.
func (f *front) pass(ctx context.Context, client *net.TCPConn) {
	all := *f.backends.Load()
	dialer := net.Dialer{Timeout: connectTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", all[rand.IntN(len(all))])
	if err != nil {
		abort(client)
		return
	}
	pod := conn.(*net.TCPConn)
	end := context.AfterFunc(ctx, func() {
		client.Close()
		pod.Close()
	})
	defer end()
	var both sync.WaitGroup
	both.Go(func() { transfer(pod, client) })
	both.Go(func() { transfer(client, pod) })
	both.Wait()
	client.Close()
	pod.Close()
}

// transfer passes on what one side sends, and that it sends no more. A connection that breaks is broken on both sides.
func transfer(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		abort(to)
		abort(from)
		return
	}
	_ = to.CloseWrite() // it may have been closed meanwhile
}

// abort closes a connection as the death of a process does: with a reset.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	conn.Close()
}
