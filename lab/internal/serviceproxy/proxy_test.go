package serviceproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

// The addresses of these tests are in no lab's range.
const serviceIP, podA, podB = "127.190.0.1", "127.190.1.1", "127.190.1.2"

func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "mon"},
		Spec: corev1.ServiceSpec{
			ClusterIP: serviceIP, Selector: map[string]string{"mon": "a"}, PublishNotReadyAddresses: true,
			Ports: []corev1.ServicePort{{Port: 3300, TargetPort: intstr.FromInt32(3300)}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func pod(name, ip string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"mon": "a"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "msgr2", ContainerPort: 3333}}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func unready(p *corev1.Pod)     { p.Status.Conditions = nil }
func terminating(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }

// to has a Service lead to a port.
func to(port int32) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(port) }
}

func TestRoutes(t *testing.T) {
	port := func(to intstr.IntOrString) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = to }
	}
	for name, test := range map[string]struct {
		service *corev1.Service
		pods    []*corev1.Pod
		want    string
	}{
		"ready": {service(nil), []*corev1.Pod{pod("a", podA, nil)}, "[127.190.1.1:3300]"},
		"both": {
			service(nil),
			[]*corev1.Pod{pod("b", podB, nil), pod("a", podA, nil)},
			"[127.190.1.1:3300 127.190.1.2:3300]",
		},
		"not ready": {service(nil), []*corev1.Pod{pod("a", podA, unready)}, "[127.190.1.1:3300]"},
		"the ready one": {
			service(nil), []*corev1.Pod{pod("a", podA, unready), pod("b", podB, nil)}, "[127.190.1.2:3300]",
		},
		"not the one that goes": {
			service(nil), []*corev1.Pod{pod("a", podA, terminating), pod("b", podB, unready)}, "[127.190.1.2:3300]",
		},
		"only one that goes": {service(nil), []*corev1.Pod{pod("a", podA, terminating)}, "[127.190.1.1:3300]"},
		"not ready, and not published": {
			service(func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = false }), []*corev1.Pod{pod("a", podA,
				unready)}, "[]",
		},
		"no address yet": {service(nil), []*corev1.Pod{pod("a", "", nil)}, "[]"},
		"another's": {
			service(nil), []*corev1.Pod{pod("a", podA, func(p *corev1.Pod) { p.Labels["mon"] = "b" })}, "[]",
		},
		"another namespace's": {
			service(nil), []*corev1.Pod{pod("a", podA, func(p *corev1.Pod) { p.Namespace = "other" })}, "[]",
		},
		"failed": {
			service(nil), []*corev1.Pod{pod("a", podA, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })}, "[]",
		},
		"port by name": {
			service(port(intstr.FromString("msgr2"))),
			[]*corev1.Pod{pod("a", podA, nil)},
			"[127.190.1.1:3333]",
		},
		"port of no name": {service(port(intstr.FromString("none"))), []*corev1.Pod{pod("a", podA, nil)}, "[]"},
		"port by default": {service(port(intstr.IntOrString{})), []*corev1.Pod{pod("a", podA, nil)}, "[127.190.1.1:3300]"},
		"headless": {service(func(s *corev1.Service) { s.Spec.ClusterIP = "None" }), []*corev1.Pod{pod("a", podA,
			nil)}, "[]"},
		"without selector": {service(func(s *corev1.Service) { s.Spec.Selector = nil }), []*corev1.Pod{pod("a", podA,
			nil)}, "[]"},
	} {
		got := routes([]*corev1.Service{test.service}, test.pods)
		if to := fmt.Sprint(got[serviceIP+":3300"]); to != test.want {
			t.Errorf("%s: %s, want %s", name, to, test.want)
		}
	}
}

// TestProxy follows a mon that moves: its address refuses connections, serves, stays, and refuses them again.
func TestProxy(t *testing.T) {
	client := fake.NewClientset(service(to(port(t))))
	if err := Start(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	target := port(t)
	refused(t)
	serve(t, podA, target, "a")
	create(t, client, pod("a", podA, unready))
	says(t, "a")
	kept := dial(t)
	answers(t, kept, "a")

	// A successor at another address: who is connected stays where it is.
	serve(t, podB, target, "b")
	create(t, client, pod("b", podB, nil))
	says(t, "b")
	answers(t, kept, "a")

	for _, name := range []string{"a", "b"} {
		if err := client.CoreV1().Pods("ns").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	refused(t)
	answers(t, kept, "a")
}

// TestPodThatDoesNotServe: its client is cut off, and does not wait.
func TestPodThatDoesNotServe(t *testing.T) {
	client := fake.NewClientset(service(to(port(t))),
		pod("a", podA, unready))
	if err := Start(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	conn := dial(t)
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes", n)
	}
}

// TestAddressInUse: whoever has it keeps it, and then it is the Service's.
func TestAddressInUse(t *testing.T) {
	var other net.Listener
	eventually(t, "the proxies of other tests have ended", func() bool {
		var err error
		other, err = net.Listen("tcp", serviceIP+":3300")
		return err == nil
	})
	defer other.Close()
	target := port(t)
	serve(t, podA, target, "a")
	client := fake.NewClientset(service(func(s *corev1.Service) { s.Spec.Ports[0].TargetPort = intstr.FromInt32(target) }),
		pod("a", podA, nil))
	if err := Start(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	other.Close()
	says(t, "a")
}

// ports are different for each test, so that they do not meet.
func port(t *testing.T) int32 {
	t.Helper()
	return map[string]int32{"TestProxy": 3301, "TestPodThatDoesNotServe": 3302, "TestAddressInUse": 3303}[t.Name()]
}

// serve answers every line with a name.
func serve(t *testing.T, ip string, port int32, name string) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(int(port))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				for scanner := bufio.NewScanner(conn); scanner.Scan(); {
					fmt.Fprintln(conn, name)
				}
				fmt.Fprintln(conn, "end of "+name) // the other side sends no more, and still listens
				conn.Close()
			}()
		}
	}()
}

func create(t *testing.T, client kubernetes.Interface, p *corev1.Pod) {
	t.Helper()
	if _, err := client.CoreV1().Pods(p.Namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

const patience = 20 * time.Second

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func refused(t *testing.T) {
	t.Helper()
	eventually(t, "refused", func() bool {
		conn, err := net.Dial("tcp", serviceIP+":3300")
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
}

func dial(t *testing.T) net.Conn {
	t.Helper()
	var conn net.Conn
	eventually(t, "connected", func() bool {
		var err error
		conn, err = net.Dial("tcp", serviceIP+":3300")
		return err == nil
	})
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(2 * patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// answers asks over a connection who is at its other end.
func answers(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	fmt.Fprintln(conn, "who?")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != want+"\n" {
		t.Fatalf("%q, %v, want %s", line, err, want)
	}
}

// says connects until the right one answers, and takes the end of what is said to it for no end of what it says.
func says(t *testing.T, want string) {
	t.Helper()
	eventually(t, want+" answers", func() bool {
		conn, err := net.Dial("tcp", serviceIP+":3300")
		if err != nil {
			return false
		}
		defer conn.Close()
		fmt.Fprintln(conn, "who?")
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return false
		}
		said, err := io.ReadAll(conn)
		return err == nil && string(said) == want+"\nend of "+want+"\n"
	})
}
