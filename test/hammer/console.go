package hammer

import (
	"bufio"
	"bytes"
	"context"
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

func newConsole(ctx context.Context, env []string) (*console, error) {
	c := &console{cmd: exec.CommandContext(ctx, lookPath(env, "ceph"), "--format", "json")} //nolint:gosec // the lab's own
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

// ask decodes the answer to one question, which may be several lines long. Before it there may be empty ones.
func (c *console) ask(into any, question string) error {
	if _, err := fmt.Fprintln(c.in, question); err != nil {
		return err
	}
	var answer []byte
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("ceph %s: %w", question, err)
		}
		if len(answer) == 0 && !bytes.HasPrefix(line, []byte("{")) {
			if bytes.Contains(line, []byte("Error")) {
				return errors.New(string(bytes.TrimSpace(line)))
			}
			continue
		}
		if answer = append(answer, line...); json.Valid(answer) {
			return json.Unmarshal(answer, into)
		}
	}
}

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
