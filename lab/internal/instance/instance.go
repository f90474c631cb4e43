// Package instance knows one running lab from another: names, folders, ports, who is alive, and what a crash left
// behind.
package instance

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// DefaultName is the name of a lab that was given none.
const DefaultName = "default"

// Instance is one lab.
type Instance struct {
	Name string `json:"name"`
	// Dir holds everything of this instance and nothing of any other. It is short, since unix sockets live in it.
	Dir   string `json:"dir"`
	Ports Ports  `json:"ports"`
}

// Path joins names to the instance's folder.
func (i Instance) Path(elem ...string) string {
	return filepath.Join(append([]string{i.Dir}, elem...)...)
}

// Kubeconfig is the admin's kubeconfig.
func (i Instance) Kubeconfig() string { return i.Path("kubeconfig") }

// Log is where the component of that name writes.
func (i Instance) Log(name string) string { return i.Path("log", name+".log") }

// AuditLog is where the API server notes who was evicted, and what service accounts asked for: a JSON object a line.
func (i Instance) AuditLog() string { return i.Path("log", "audit.jsonl") }

// ControlSocket is where the supervisor listens for faults and questions.
func (i Instance) ControlSocket() string { return i.Path("control.sock") }

// Nodes is where nodes keep what is theirs, each in a folder of its name.
func (i Instance) Nodes() string { return i.Path("nodes") }

// ImageLink leads to the root filesystem of the lab's Ceph release. There is none when that is the machine's.
func (i Instance) ImageLink() string { return i.Path("image") }

// NodeDisk is the folder that stands for a node's own root filesystem.
func (i Instance) NodeDisk(node string) string { return filepath.Join(i.Nodes(), node, "disk") }

// maxDir leaves room for the longest socket name below the folder: sun_path holds 107 bytes.
const maxDir = 60

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$`)

// Home is the folder of all of this user's instances.
func Home() string {
	if home := os.Getenv("LAB_HOME"); home != "" {
		return home
	}
	return filepath.Join(cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), "/tmp"), "lockkeeper-lab-"+strconv.Itoa(os.Getuid()))
}

// Locate gives the instance of that name without its ports, whether or not it exists.
func Locate(name string) (Instance, error) {
	if !validName.MatchString(name) {
		return Instance{}, fmt.Errorf("--name %q: allowed are up to 20 of a-z, 0-9 and -, not - at either end", name)
	}
	dir, err := filepath.Abs(filepath.Join(Home(), name))
	if err != nil {
		return Instance{}, err
	}
	if len(dir) > maxDir {
		return Instance{}, fmt.Errorf(
			"folder %s is too long for unix sockets (%d characters, %d allowed): set LAB_HOME to a shorter one", dir,
			len(dir), maxDir)
	}
	return Instance{Name: name, Dir: dir}, nil
}

// Config is what an instance was started with, and is started with again after `lab down --keep`.
type Config struct {
	Instance
	Topology Topology `json:"topology"`
	Ceph     bool     `json:"ceph"`
	Temporal bool     `json:"temporal"`
}

// ErrNotFound says that there is no such instance.
var ErrNotFound = errors.New("no such lab")

// Load reads the configuration of an instance. The error is ErrNotFound if it was never started.
func Load(name string) (Config, error) {
	inst, err := Locate(name)
	if err != nil {
		return Config{}, err
	}
	b, err := os.ReadFile(inst.Path("instance.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, fmt.Errorf("%w: %s (start it with `lab up --name %s`)", ErrNotFound, name, name)
	}
	if err != nil {
		return Config{}, err
	}
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return Config{}, fmt.Errorf("%s: %w", inst.Path("instance.json"), err)
	}
	// The folder may have been moved or reached by another path.
	c.Instance.Name, c.Instance.Dir = inst.Name, inst.Dir
	return c, nil
}

// Save writes the configuration.
func (c Config) Save() error { return writeJSON(c.Path("instance.json"), c) }

// List returns the configurations of all of this user's instances, by name.
func List() ([]Config, error) {
	entries, err := os.ReadDir(Home())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Config
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if c, err := Load(e.Name()); err == nil {
			all = append(all, c)
		}
	}
	return all, nil
}

// writeJSON replaces a file as a whole, so that a reader never sees half of it.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
