package startup

import "os"

// Container returns a name for the container of this process, for lock.Options: it is unique, and stays the same when the
// container is started again. It is empty if the pod is not known, or if the container may have other processes of the
// program, because this one is not its first.
func Container() string {
	pod, uid := os.Getenv("POD_NAME"), os.Getenv("POD_UID")
	if pod == "" || uid == "" || os.Getpid() != 1 {
		return ""
	}
	return pod + "_" + uid
}
