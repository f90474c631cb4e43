package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/ceph/go-ceph/rados"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// This file is how a scenario looks at its world. It looks again and again until it sees what it waits for, beside labs
// that share few cores with it. `kubectl get` keeps one of them busy for half a second, and `ceph` for a whole one; so
// it reads from the API server itself, and has one process that asks Ceph.

// looks are a world's connections for that.
type looks struct {
	mu   sync.Mutex
	api  rest.Interface
	ceph *asker
}

// reading is how long the API server may take.
const reading = 30 * time.Second

// Paths of the API server.
const (
	inNamespace = "/namespaces/" + cephNamespace + "/"
	corePath    = "/api/v1"
	ourPath     = "/apis/lockkeeper.io/v1alpha1" + inNamespace
	cephOSDPath = "/apis/ceph.elemental.net/v1alpha1" + inNamespace + "cephosds/"
	podsPath    = corePath + inNamespace + "pods"
	policyPath  = ourPath + "maintenancepolicies/" + policyName
	budgetsPath = "/apis/policy/v1" + inNamespace + "poddisruptionbudgets"
)

// get reads what the API server has at a path: one object, or a list.
func (w *world) get(into any, path string) error {
	c, err := w.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), reading)
	defer cancel()
	body, err := c.Get().RequestURI(path).DoRaw(ctx)
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return fmt.Errorf("get %s: %w", path, err)
	}
	return nil
}

// client is one with an administrator's rights, that asks as often as it is told to.
func (w *world) client() (rest.Interface, error) {
	l := &w.looks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.api == nil {
		config, err := clientcmd.BuildConfigFromFlags("", w.env["KUBECONFIG"])
		if err != nil {
			return nil, err
		}
		config.QPS = -1
		clients, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		l.api = clients.CoreV1().RESTClient()
	}
	return l.api, nil
}

// ask has the mons answer a command: "osd dump".
func (w *world) ask(into any, command string) error {
	l := &w.looks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ceph == nil {
		c := w.command("lab-in-image", "--name", w.name, os.Args[0])
		c.Env = append(c.Env, askEnv+"=yes")
		a, err := startAsker(c)
		if err != nil {
			return err
		}
		l.ceph = a
	}
	answer, err := l.ceph.ask(command)
	if err != nil {
		l.ceph.end()
		l.ceph = nil
		return fmt.Errorf("ceph %s: %w", command, err)
	}
	if answer.Problem != "" {
		return fmt.Errorf("ceph %s: %s", command, answer.Problem)
	}
	if err := json.Unmarshal(answer.JSON, into); err != nil {
		return fmt.Errorf("ceph %s: %w in %q", command, err, answer.JSON)
	}
	return nil
}

// stopLooking ends what asks Ceph.
func (w *world) stopLooking() {
	w.looks.mu.Lock()
	defer w.looks.mu.Unlock()
	if w.looks.ceph != nil {
		w.looks.ceph.end()
		w.looks.ceph = nil
	}
}

// askEnv makes this test's binary one that asks Ceph what it reads from its standard input, a command a line: so it can
// run where the librados of the cluster's release is.
const askEnv = "LOCKKEEPER_TEST_ASK"

// cephAnswer is one line of what it says.
type cephAnswer struct {
	JSON    json.RawMessage `json:"json,omitempty"`
	Problem string          `json:"problem,omitempty"`
}

// asker is such a process.
type asker struct {
	process *exec.Cmd
	to      io.WriteCloser
	from    *bufio.Reader
}

func startAsker(c *exec.Cmd) (a *asker, err error) {
	a = &asker{process: c}
	if a.to, err = c.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.from = bufio.NewReader(out)
	return a, c.Start()
}

func (a *asker) ask(command string) (answer cephAnswer, err error) {
	if _, err = fmt.Fprintln(a.to, command); err != nil {
		return answer, err
	}
	line, err := a.from.ReadBytes('\n')
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(line, &answer)
}

func (a *asker) end() {
	_ = a.to.Close()
	_ = a.process.Process.Kill()
	_ = a.process.Wait()
}

// answerQuestions is what such a process does, until its standard input ends.
func answerQuestions(from io.Reader, to io.Writer) error {
	var conn *rados.Conn
	out := json.NewEncoder(to)
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		var answer cephAnswer
		var err error
		if conn == nil {
			conn, err = connectToCeph()
		}
		if err == nil {
			answer.JSON, err = askMons(conn, lines.Text())
		}
		if err != nil {
			answer = cephAnswer{Problem: err.Error()}
		}
		if err := out.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// connectToCeph connects as ceph's own command does, by the configuration that the environment names.
func connectToCeph() (*rados.Conn, error) {
	conn, err := rados.NewConn()
	if err != nil {
		return nil, err
	}
	const patience = "20" // seconds
	err = errors.Join(
		conn.ReadConfigFile(os.Getenv("CEPH_CONF")),
		conn.SetConfigOption("rados_mon_op_timeout", patience),
		conn.SetConfigOption("client_mount_timeout", patience),
	)
	if err == nil {
		err = conn.Connect()
	}
	return conn, err
}

func askMons(conn *rados.Conn, command string) (json.RawMessage, error) {
	ask, err := json.Marshal(map[string]string{"prefix": command, "format": "json"})
	if err != nil {
		return nil, err
	}
	answer, said, err := conn.MonCommand(ask)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, said)
	}
	return answer, nil
}
