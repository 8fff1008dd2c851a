package binaries

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

// A store is the folder of built programs, with a folder for each build, which is renamed when the build is complete.
type store struct {
	dir      string
	module   *module
	download *download // nil if the programs can only be compiled
}

const (
	program  = "program" // the file to which all names link
	sizeFile = "size"    // the file with the size of the program
	drafts   = ".build-" // prefix of unfinished builds
)

// lockInterval is the interval at which a build that waits for another one tries to get the lock.
const lockInterval = 200 * time.Millisecond

// ensure returns the folder with the programs, and builds them if they are missing or damaged. Of several processes at
// the same time, one builds and the others wait.
func (s *store) ensure(ctx context.Context, progress io.Writer) (string, error) {
	final := filepath.Join(s.dir, s.module.key())
	if s.isComplete(final) {
		return final, nil
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return "", Explain("create the cache folder", err)
	}
	lock, err := s.acquireLock(ctx, progress)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if s.isComplete(final) {
		return final, nil // another process has built it
	}
	if _, err := os.Stat(final); err == nil {
		fmt.Fprintf(progress, "the programs in %s are damaged: building them again\n", final)
	}
	return final, s.build(ctx, final, progress)
}

// isComplete reports whether a build exists, with the size that was recorded for it.
func (s *store) isComplete(dir string) bool {
	recorded, err := os.ReadFile(filepath.Join(dir, sizeFile))
	if err != nil {
		return false
	}
	size, err := strconv.ParseInt(strings.TrimSpace(string(recorded)), 10, 64)
	if err != nil {
		return false
	}
	for _, name := range s.module.names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Size() != size || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

func (s *store) acquireLock(ctx context.Context, progress io.Writer) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(s.dir, ".lock"))
	free, err := lock.TryLock()
	if err == nil && !free {
		fmt.Fprintln(progress, "another process is building "+s.module.cache+": waiting for it")
		_, err = lock.TryLockContext(ctx, lockInterval)
	}
	if err != nil {
		return nil, Explain("wait for another build", err)
	}
	return lock, nil
}

// build builds the programs in a draft, and renames the draft when it is complete. It also removes the drafts of
// killed builds; the lock ensures that no process uses them.
func (s *store) build(ctx context.Context, final string, progress io.Writer) (err error) {
	abandoned, _ := filepath.Glob(filepath.Join(s.dir, drafts+"*"))
	for _, dir := range abandoned {
		_ = os.RemoveAll(dir)
	}
	draft, err := os.MkdirTemp(s.dir, drafts)
	if err != nil {
		return Explain("create the folder of the build", err)
	}
	defer os.RemoveAll(draft)
	if err := s.fill(ctx, draft, progress); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(final), os.Rename(draft, final)); err != nil {
		return Explain("put the programs in place", err)
	}
	return nil
}

// fill downloads or compiles the program into dir and links all names to it.
func (s *store) fill(ctx context.Context, dir string, progress io.Writer) error {
	source := filepath.Join(dir, "module")
	if err := os.Mkdir(source, 0o700); err != nil {
		return Explain("create the folder of the build", err)
	}
	if err := s.module.write(source); err != nil {
		return Explain("create the folder of the build", err)
	}
	built := filepath.Join(dir, program)
	downloaded := s.download != nil
	if downloaded {
		if err := s.download.run(ctx, built, s.module, progress); ctx.Err() != nil {
			return fmt.Errorf("download interrupted: %w", context.Cause(ctx))
		} else if err != nil {
			fmt.Fprintf(progress, "cannot download the programs, compiling them instead: %v\n", err)
			downloaded = false
		}
	}
	if !downloaded {
		if err := compile(ctx, source, built, s.module, progress); err != nil {
			return err
		}
	}
	info, err := os.Stat(built)
	if err != nil {
		return err
	}
	for _, name := range s.module.names {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			return Explain("link the programs", err)
		}
	}
	size := []byte(strconv.FormatInt(info.Size(), 10) + "\n")
	return errors.Join(os.WriteFile(filepath.Join(dir, sizeFile), size, 0o600), os.RemoveAll(source))
}

// CacheDir returns a folder of Runlevel in the user's cache.
func CacheDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder: %w; set HOME%s", err, orCacheVariable())
	}
	return filepath.Join(cache, "runlevel", name), nil
}

// Explain adds to an error the action that failed in the cache, and the remedy for a full disk or a missing permission.
func Explain(doing string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.ENOSPC):
		advice = "; free some space" + orAnotherCache("on another disk")
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		advice = "; let this user write there" + orAnotherCache("that you may write to")
	}
	return fmt.Errorf("%s: %w%s", doing, err, advice)
}

// orCacheVariable names the variable that moves the cache on systems other than macOS, where Go's library ignores it.
func orCacheVariable() string {
	if runtime.GOOS == "darwin" {
		return ""
	}
	return " or XDG_CACHE_HOME"
}

func orAnotherCache(which string) string {
	if orCacheVariable() == "" {
		return ""
	}
	return ", or set XDG_CACHE_HOME to a folder " + which
}
