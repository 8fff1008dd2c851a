package binaries

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// CacheDir returns a folder of Runlevel in the user's cache.
func CacheDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder: %w; set HOME%s", err, orCacheVariable())
	}
	return filepath.Join(cache, "runlevel", name), nil
}

// Explain adds to an error the action that failed in the cache, and how to fix a full disk or a missing permission.
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
