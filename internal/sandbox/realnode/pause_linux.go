package realnode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// pauseImage is the image of the container that holds the namespaces of a pod.
const pauseImage = "sandbox.runlevel.dev/pause:1"

// pausePrograms has programs that sleep forever, by architecture: pause(2), or ppoll(2) without files, in a loop.
var pausePrograms = map[string]struct {
	machine uint16 // machine number in ELF
	code    []byte
}{
	"amd64": {0x3e, []byte{
		0xb8, 0x22, 0x00, 0x00, 0x00, // mov eax, 34 (pause)
		0x0f, 0x05, // syscall
		0xeb, 0xf7, // jmp to the mov
	}},
	"arm64": {0xb7, []byte{
		0x00, 0x00, 0x80, 0xd2, // mov x0, 0
		0x01, 0x00, 0x80, 0xd2, // mov x1, 0
		0x02, 0x00, 0x80, 0xd2, // mov x2, 0
		0x03, 0x00, 0x80, 0xd2, // mov x3, 0
		0x28, 0x09, 0x80, 0xd2, // mov x8, 73 (ppoll)
		0x01, 0x00, 0x00, 0xd4, // svc 0
		0xfa, 0xff, 0xff, 0x17, // b to the first mov
	}},
}

// pauseProgram returns the file of the program: an ELF header, one segment, and the code.
func pauseProgram(architecture string) ([]byte, error) {
	pause, ok := pausePrograms[architecture]
	if !ok {
		return nil, fmt.Errorf("real nodes run on amd64 and arm64, not on %s", architecture)
	}
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(pause.code))
	var file bytes.Buffer
	file.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, field := range []any{
		// executable, entry, segments
		uint16(2), pause.machine, uint32(1), uint64(base + headers), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(0), uint16(0), uint16(0),
		// loaded, readable, executable
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		_ = binary.Write(&file, binary.LittleEndian, field) // a write to a buffer does not fail
	}
	file.Write(pause.code)
	return file.Bytes(), nil
}

// writePauseImage writes the image as an archive, and its files into a folder.
func writePauseImage(folder, archive string) error {
	program, err := pauseProgram(runtime.GOARCH)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "pause"), program, 0o755); err != nil {
		return err
	}
	return packFiles(folder, pauseImage, archive, []string{"/pause"})
}
