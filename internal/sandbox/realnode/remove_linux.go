package realnode

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Remove removes the containers, mounts, networks and control groups of the nodes of a folder. Remove also works after
// a crash, during a start, and a second time. The components of the nodes must have exited. After an error, the folder
// must not be deleted: volumes of pods may still be mounted in it.
func Remove(folder string) error {
	text, err := os.ReadFile(filepath.Join(folder, numberFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	s := nodeSet{folder: folder}
	if s.number, err = strconv.Atoi(string(text)); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(folder, numberFile), err)
	}
	return errors.Join(
		killShims(folder),
		removeControlGroup(s.cgroup()),
		s.disconnect(),
		unmountAll(folder),
		restoreSettings(folder),
	)
}

// killShims kills the processes of containerd that supervise containers, which continue after containerd exits, and
// removes their sockets.
func killShims(folder string) error {
	sockets, err := filepath.Glob(
		filepath.Join(folder, "*", "state", "io.containerd.runtime.v2.task", "*", "*", "address"),
	)
	if err != nil {
		return err
	}
	for _, file := range sockets {
		if address, err := os.ReadFile(file); err == nil {
			_ = os.Remove(strings.TrimPrefix(strings.TrimSpace(string(address)), "unix://"))
		}
	}
	err = wait.ExponentialBackoff(exitBackoff, func() (bool, error) {
		shims, err := findShims(folder)
		for _, pid := range shims {
			_ = syscall.Kill(pid, syscall.SIGKILL) // fails if the process has just exited
		}
		return len(shims) == 0, err
	})
	if err != nil {
		return fmt.Errorf("containerd-shim does not exit: %w", err)
	}
	return nil
}

// exitBackoff limits the wait until killed processes have exited.
var exitBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1, Steps: 100}

// findShims returns the process IDs of the shims of a folder's containers.
func findShims(folder string) ([]int, error) {
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	var shims []int
	for _, file := range processes {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), "containerd-shim") ||
			!strings.Contains(string(line), folder+"/") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			shims = append(shims, pid)
		}
	}
	return shims, err
}

// disconnect removes the links and network namespaces.
func (s nodeSet) disconnect() error {
	names, err := filepath.Glob(filepath.Join(namespaces, s.bridge()+"-*"))
	errs := []error{err}
	for _, name := range names {
		// this also removes its links and their other ends
		errs = append(errs, run(exec.Command("ip", "netns", "delete", filepath.Base(name))))
	}
	if _, err := os.Stat("/sys/class/net/" + s.bridge()); err == nil {
		errs = append(errs, run(exec.Command("ip", "link", "delete", s.bridge())))
	}
	return errors.Join(errs...)
}

// unmountAll unmounts everything below a folder, and returns an error if something remains mounted there.
func unmountAll(folder string) error {
	points, err := mountsBelow(folder)
	for _, mount := range points {
		_ = syscall.Unmount(mount, syscall.MNT_DETACH|umountNoFollow)
	}
	if err == nil {
		points, err = mountsBelow(folder)
	}
	if len(points) > 0 {
		return fmt.Errorf("%d mounts remain, such as %s: unmount them, and run this again", len(points), points[0])
	}
	return err
}

const umountNoFollow = 8 // UMOUNT_NOFOLLOW, which package syscall does not have

// mountsBelow returns the mount points below a folder, inner ones first.
func mountsBelow(folder string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	var points []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		const mountPoint = 4
		if len(fields) <= mountPoint {
			continue
		}
		point := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[mountPoint])
		if strings.HasPrefix(point, folder+"/") {
			points = append(points, point)
		}
	}
	slices.SortFunc(points, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return points, err
}
