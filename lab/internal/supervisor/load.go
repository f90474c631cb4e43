package supervisor

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper/lab/internal/child"
	"github.com/lockkeeper/lockkeeper/lab/internal/instance"
	"github.com/lockkeeper/lockkeeper/lab/internal/rookceph"
)

// LoadReport is the file that the load keeps up to date.
func LoadReport(inst instance.Instance) string { return inst.Path("load.json") }

const (
	loadProgram    = "lab-load"
	inImageProgram = "lab-in-image" // makes others clients of the lab's Ceph
	// loadGrace leaves time for verifying every object once more.
	loadGrace = 30 * time.Second
	// LoadDrain is how long the load of a volume waits for its last operations.
	LoadDrain = 10 * time.Second
	// loadDeadline is by when a load that can start has written its first report.
	loadDeadline = 10 * time.Second
)

// VolumeLoadCommand is the command of our own binary that is the load of a volume.
const VolumeLoadCommand = "volume-load"

// startLoad returns when the load works: on a volume of Longhorn, or else on a pool of Ceph.
func (l *lab) startLoad(volume string) error {
	spec, err := l.loadSpec(volume)
	if err != nil {
		return err
	}
	process, err := l.spawnLoad(spec)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(loadDeadline); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(LoadReport(l.Instance)); err == nil {
			return nil
		}
		if s := process.State(); s.Restarts > 0 || time.Now().After(deadline) {
			_ = l.stopLoad() // somebody else may have
			return fmt.Errorf("the load does not start: %s (see %s)", s.LastExit, s.Log)
		}
	}
}

// loadSpec is the program that is the load.
func (l *lab) loadSpec(volume string) (child.Spec, error) {
	spec := child.Spec{Name: "load", Log: l.Log("load"), Grace: loadGrace}
	switch {
	case volume != "" && !l.Topology.Longhorn:
		return spec, errors.New("--volume: this lab has no Longhorn (`lab up --longhorn`)")
	case volume != "":
		spec.Path, spec.Args = l.binary, []string{VolumeLoadCommand, "--name", l.Name, volume}
		return spec, nil
	case !l.Ceph:
		return spec, errors.New("this lab has no Ceph to load; a volume of Longhorn takes --volume")
	}
	program := l.beside(loadProgram)
	if _, err := os.Stat(program); err != nil {
		return spec, fmt.Errorf("%s is missing: `make build` makes it, with librados (apt-get install -y "+
			"--no-install-recommends librados-dev)", program)
	}
	spec.Path, spec.Args = l.beside(inImageProgram), []string{
		"--name", l.Name, program, "--conf", rookceph.AdminConfig(l.Instance), "--pool", rookceph.Pool,
		"--report-file", LoadReport(l.Instance),
	}
	return spec, nil
}

func (l *lab) spawnLoad(spec child.Spec) (*child.Process, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.load != nil {
		return nil, errors.New("the load runs already")
	}
	if err := os.RemoveAll(LoadReport(l.Instance)); err != nil {
		return nil, err
	}
	process, err := child.Start(spec)
	if err == nil {
		l.load = process
	}
	return process, err
}

func (l *lab) stopLoad() error {
	l.mu.Lock()
	process := l.load
	l.load = nil
	l.mu.Unlock()
	if process == nil {
		return errors.New("no load runs")
	}
	process.Stop()
	return nil
}
