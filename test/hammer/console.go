package hammer

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// console is one `ceph` that is asked many questions: a process for each would cost more than all the rest.
type console struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newConsole(env []string) (*console, error) {
	c := &console{cmd: exec.Command(lookPath(env, "ceph"), "--format", "json")} //nolint:gosec // the lab's own
	c.cmd.Env = append(slices.Clone(env), "PYTHONUNBUFFERED=1")
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.cmd.Stderr = c.cmd.Stdout // a refusal is an answer, too
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	return c, c.cmd.Start()
}

// ask decodes the answer to one question. Before an answer there may be a prompt and an empty line.
func (c *console) ask(into any, question string) error {
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		return err
	}
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			return fmt.Errorf("ceph %s: %w", question, err)
		}
		if _, text, ok := strings.Cut(line, "{"); ok {
			return json.Unmarshal([]byte("{"+text), into)
		}
		if strings.Contains(line, "Error") {
			return errors.New(strings.TrimSpace(line))
		}
	}
}

func (c *console) kill() { _ = c.cmd.Process.Kill() }

func (c *console) close() {
	_ = c.in.Close()
	_ = c.cmd.Wait()
}

func lookPath(env []string, name string) string {
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			for _, dir := range strings.Split(path, ":") {
				if i, err := os.Stat(dir + "/" + name); err == nil && !i.IsDir() {
					return dir + "/" + name
				}
			}
		}
	}
	return name
}
