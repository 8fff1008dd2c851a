package overlay_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/runlevel/runlevel/internal/source/overlay"
)

func lowerFiles() fstest.MapFS {
	return fstest.MapFS{
		"kept":          {Data: []byte("kept")},
		"mended":        {Data: []byte("before")},
		"removed":       {Data: []byte("removed")},
		"m/kept":        {Data: []byte("kept")},
		"m/mended":      {Data: []byte("before")},
		"m/removed":     {Data: []byte("removed")},
		"m/deeper/kept": {Data: []byte("kept")},
	}
}

// changed has a file of each fate in two folders.
func changed() *overlay.FS {
	o := overlay.On(lowerFiles())
	for _, folder := range []string{"", "m/"} {
		o.Put(folder+"mended", []byte("after"))
		o.Put(folder+"added", []byte("added"))
		o.Put(folder+"never", []byte("never"))
		o.Remove(folder + "never")
		o.Remove(folder + "removed")
		o.Put(folder+"empty", nil)
	}
	return o
}

// TestOverlayIsAFileSystem runs the checks of the standard library, which compare the results of Open,
// Read, ReadDir and Stat.
func TestOverlayIsAFileSystem(t *testing.T) {
	files := []string{"added", "empty", "kept", "m/added", "m/deeper/kept", "m/empty", "m/kept", "m/mended", "mended"}
	if err := fstest.TestFS(changed(), files...); err != nil {
		t.Error(err)
	}
	var found []string
	err := fs.WalkDir(changed(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, name)
		}
		return err
	})
	if err != nil || !slices.Equal(found, files) {
		t.Errorf("got files %v (%v), want %v", found, err, files)
	}
}

func TestEveryWayToReadReturnsTheSame(t *testing.T) {
	for name, want := range map[string]string{
		"kept": "kept", "mended": "after", "added": "added", "empty": "", "m/kept": "kept", "m/mended": "after",
		"m/added": "added",
	} {
		t.Run(name, func(t *testing.T) {
			read, err := fs.ReadFile(changed(), name)
			if err != nil || string(read) != want {
				t.Errorf("read: %q, %v; want %q", read, err, want)
			}
			file, err := changed().Open(name)
			if err != nil {
				t.Fatal(err)
			}
			opened, err := file.Stat()
			if err != nil || opened.Size() != int64(len(want)) {
				t.Errorf("opened: %v, %v; want %d bytes", opened, err, len(want))
			}
			request, err := fs.Stat(changed(), name)
			if err != nil || request.Size() != int64(len(want)) {
				t.Errorf("asked about: %v, %v; want %d bytes", request, err, len(want))
			}
		})
	}
	for _, name := range []string{"removed", "never", "m/removed", "m/never", "nowhere"} {
		t.Run(name, func(t *testing.T) {
			_, read := fs.ReadFile(changed(), name)
			_, opened := changed().Open(name)
			_, request := fs.Stat(changed(), name)
			for _, err := range []error{read, opened, request} {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%v, want %v", err, fs.ErrNotExist)
				}
			}
		})
	}
}

// TestARecreatedFile creates a file with the name of a removed file.
func TestARecreatedFile(t *testing.T) {
	o := overlay.On(lowerFiles())
	o.Remove("removed")
	o.Put("removed", []byte("back"))
	if text, err := fs.ReadFile(o, "removed"); err != nil || string(text) != "back" {
		t.Errorf("got %q, %v, want the file of the folder below", text, err)
	}
	if err := fstest.TestFS(o, "removed"); err != nil {
		t.Error(err)
	}
}

// TestReadersOwnTheirBytes checks that a reader can't change the bytes of the next reader.
func TestReadersOwnTheirBytes(t *testing.T) {
	o := changed()
	text, err := fs.ReadFile(o, "added")
	if err != nil {
		t.Fatal(err)
	}
	text[0] = 'A'
	if again, err := fs.ReadFile(o, "added"); err != nil || string(again) != "added" {
		t.Errorf("got %q, %v the second time, want the same as before", again, err)
	}
}
