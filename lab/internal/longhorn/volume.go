package longhorn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockkeeper/lockkeeper/lab/internal/manifest"
)

// API is Longhorn's own API, which its UI and its CSI driver use, at any of its managers.
type API struct {
	kube kubernetes.Interface
	http http.Client
}

// NewAPI finds the managers by the API server.
func NewAPI(kube kubernetes.Interface) *API {
	return &API{kube: kube, http: http.Client{Timeout: 30 * time.Second}}
}

// Volume is what the lab wants to know of a volume.
type Volume struct {
	Name       string `json:"name"`
	Size       string `json:"size"` // bytes
	Replicas   int    `json:"numberOfReplicas"`
	State      string `json:"state"`
	Robustness string `json:"robustness"`
	Engines    []struct {
		Host     string `json:"hostId"`
		Endpoint string `json:"endpoint"`
		Running  bool   `json:"running"`
	} `json:"controllers"`
	ReplicaProcesses []struct {
		Name string `json:"name"`
		Host string `json:"hostId"`
		Mode string `json:"mode"`
	} `json:"replicas"`
}

// Node is the node to which a volume is attached, or "".
func (v Volume) Node() string {
	for _, e := range v.Engines {
		if e.Running && e.Endpoint != "" {
			return e.Host
		}
	}
	return ""
}

// scheduled is how many replicas have a node.
func (v Volume) scheduled() int {
	n := 0
	for _, r := range v.ReplicaProcesses {
		if r.Host != "" {
			n++
		}
	}
	return n
}

// maxVolumeName leaves room for the volume's socket below a lab's folder.
const maxVolumeName = 20

var volumeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*[a-z0-9]$`)

// CheckVolumeName says what is wrong with the name of a volume.
func CheckVolumeName(name string) error {
	if len(name) > maxVolumeName || !volumeName.MatchString(name) {
		return fmt.Errorf("volume %q: allowed are 2 to %d of a-z, 0-9 and -, not - at either end", name, maxVolumeName)
	}
	return nil
}

// Create makes a volume, which is detached and has no data of its own yet, and returns when each of its replicas has a
// node. image is the backing image that it begins with, or "".
func (a *API) Create(ctx context.Context, name string, bytes int64, replicas int, image string) error {
	err := a.post(ctx, "volumes", map[string]any{
		"name": name, "size": strconv.FormatInt(bytes, 10), "numberOfReplicas": replicas, "frontend": "blockdev",
		"accessMode": "rwo", "dataEngine": "v1", "backingImage": image,
	}, nil)
	if err != nil {
		return err
	}
	_, err = a.await(ctx, name, func(v Volume) bool { return v.State == "detached" && v.scheduled() >= replicas })
	return err
}

// attachment is the name of the lab's attachments, of which a volume has one at most.
const attachment = "lab"

// Attach attaches a volume to a node, and returns when its engine serves it. healthy: when all of its replicas do, too.
func (a *API) Attach(ctx context.Context, name, node string, healthy bool) (Volume, error) {
	err := a.post(ctx, "volumes/"+name+"?action=attach", map[string]any{
		"hostId": node, "attacherType": "longhorn-api", "attachmentID": attachment,
	}, nil)
	if err != nil {
		return Volume{}, err
	}
	return a.await(ctx, name, func(v Volume) bool {
		return v.State == "attached" && v.Node() == node && (!healthy || v.Robustness == "healthy")
	})
}

// Detach detaches a volume, and returns when its engine is gone.
func (a *API) Detach(ctx context.Context, name string) (Volume, error) {
	if err := a.post(ctx, "volumes/"+name+"?action=detach", map[string]any{"attachmentID": attachment}, nil); err != nil {
		return Volume{}, err
	}
	return a.await(ctx, name, func(v Volume) bool { return v.State == "detached" })
}

func (a *API) await(ctx context.Context, name string, ok func(Volume) bool) (Volume, error) {
	var last Volume
	err := manifest.Poll(ctx, func() (bool, error) {
		v, err := a.Get(ctx, name)
		if err != nil {
			return false, err
		}
		last = v
		return ok(v), nil
	})
	if err != nil {
		return last, fmt.Errorf("volume %s is %s and %s: %w", name, last.State, last.Robustness, err)
	}
	return last, nil
}

// Get looks at a volume.
func (a *API) Get(ctx context.Context, name string) (Volume, error) {
	var v Volume
	return v, a.do(ctx, http.MethodGet, "volumes/"+name, nil, &v)
}

// List looks at all volumes.
func (a *API) List(ctx context.Context) ([]Volume, error) {
	var answer struct {
		Data []Volume `json:"data"`
	}
	return answer.Data, a.do(ctx, http.MethodGet, "volumes", nil, &answer)
}

func (a *API) post(ctx context.Context, path string, body, answer any) error {
	return a.do(ctx, http.MethodPost, path, body, answer)
}

// startsWithin is how long a manager that was just started may take until it answers.
const startsWithin = time.Minute

// do asks until a manager answers: what none of them heard may be asked again.
func (a *API) do(ctx context.Context, method, path string, body, answer any) error {
	for end := time.Now().Add(startsWithin); ; {
		err := a.askAny(ctx, method, path, body, answer)
		if !unreachable(err) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// askAny asks one manager after the other: one that was just started does not answer yet.
func (a *API) askAny(ctx context.Context, method, path string, body, answer any) error {
	pods, err := a.kube.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=longhorn-manager"})
	if err != nil {
		return err
	}
	last := errors.New("no manager of Longhorn runs")
	for _, pod := range pods.Items {
		if pod.Status.PodIP == "" || pod.DeletionTimestamp != nil {
			continue
		}
		url := "http://" + net.JoinHostPort(pod.Status.PodIP, "9500") + "/v1/" + path
		if last = a.ask(ctx, method, url, body, answer); last == nil || !unreachable(last) {
			return last
		}
	}
	return last
}

func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func (a *API) ask(ctx context.Context, method, url string, body, answer any) error {
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(b)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("Longhorn: %s", complaint(b, response.Status))
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(b, answer)
}

// complaint is the message of an error of the API.
func complaint(body []byte, status string) string {
	var said struct {
		Message string `json:"message"`
		Code    string `json:"code"`
	}
	if json.Unmarshal(body, &said) != nil || said.Message+said.Code == "" {
		return status
	}
	return strings.TrimSpace(said.Code + " " + said.Message)
}
