package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// apt fetches packages of another suite than the machine's, with lists and a cache of its own. It knows of no installed
// package, so that it fetches everything that the wanted ones depend on. It needs no rights.
type apt struct {
	dir   string
	suite string
}

// keyring holds the keys of Debian's archive.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

func (a apt) prepare(ctx context.Context) error {
	for _, program := range []string{"apt-get", "dpkg-deb", "tar", "xz"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is missing: other releases of Ceph come from Debian's packages, with the packages apt, dpkg, "+
				"tar and xz-utils", program)
		}
	}
	if _, err := os.Stat(keyring); err != nil {
		return fmt.Errorf("%w: install the package debian-archive-keyring", err)
	}
	archive, err := archive(ctx)
	if err != nil {
		return err
	}
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return err
		}
	}
	source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, archive, a.suite)
	return errors.Join(
		os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(source), 0o644),
		os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o644),
	)
}

// archive is where the machine itself gets Debian's packages, unless LAB_DEBIAN says otherwise.
func archive(ctx context.Context) (string, error) {
	if archive := os.Getenv("LAB_DEBIAN"); archive != "" {
		return archive, nil
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format",
		"$(CREATED_BY) $(COMPONENT) $(RELEASE) $(REPO_URI)").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w", err)
	}
	if found := firstArchive(string(out)); found != "" {
		return found, nil
	}
	return "", errors.New("no archive of Debian is among the machine's package sources: set LAB_DEBIAN to the address " +
		"of one")
}

// firstArchive finds a whole archive of Debian: not its updates, nor somebody else's packages.
func firstArchive(targets string) string {
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) == 4 && f[0] == "Packages" && f[1] == "main" &&
			strings.HasSuffix(strings.TrimRight(f[3], "/"), "/debian") && !strings.Contains(f[2], "-") {
			return strings.TrimRight(f[3], "/")
		}
	}
	return ""
}

// download returns the packages' files, with those that they depend on.
func (a apt) download(ctx context.Context, packages []string) ([]string, error) {
	if err := a.run(ctx, "update"); err != nil {
		return nil, err
	}
	// A list that could not be fetched is a warning to apt.
	if lists, _ := filepath.Glob(filepath.Join(a.dir, "lists", "*_Packages*")); len(lists) == 0 {
		return nil, fmt.Errorf("the archive has no list of packages of the suite %s", a.suite)
	}
	if err := a.run(ctx, append([]string{"install", "--download-only", "--assume-yes"}, packages...)...); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(a.dir, "archives", "*.deb"))
	if err == nil && len(debs) == 0 {
		err = errors.New("apt fetched no packages")
	}
	return debs, err
}

func (a apt) run(ctx context.Context, args ...string) error {
	options := []string{
		"Dir::State::lists=" + filepath.Join(a.dir, "lists"), "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"Dir::Cache=" + a.dir, "Dir::Cache::archives=" + filepath.Join(a.dir, "archives"),
		"Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"), "Dir::Etc::sourceparts=/dev/null",
		"APT::Install-Recommends=false", "APT::Sandbox::User=", "APT::Update::Error-Mode=any", "Acquire::Languages=none",
		"Acquire::Check-Valid-Until=false", "Acquire::Retries=2", "Debug::NoLocking=true",
		// Hooks of the machine are about what is installed there.
		"APT::Update::Post-Invoke-Success=", "DPkg::Pre-Install-Pkgs=",
	}
	cmd := exec.CommandContext(ctx, "apt-get", "--quiet")
	for _, o := range options {
		cmd.Args = append(cmd.Args, "--option", o)
	}
	cmd.Args = append(cmd.Args, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", args[0], err, complaint(string(out)))
	}
	return nil
}

// complaint is what apt says is wrong, without what it did until then.
func complaint(output string) string {
	var errs []string
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "E:") || strings.HasPrefix(line, "W:") {
			errs = append(errs, strings.TrimSpace(line))
		}
	}
	if len(errs) == 0 {
		return strings.TrimSpace(output[max(0, len(output)-500):])
	}
	return strings.Join(errs[max(0, len(errs)-3):], "; ")
}
