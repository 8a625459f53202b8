package peers

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"sluice/internal/lab/testnet"
)

// Docker is a dockerd of its own, with its data in a folder of its own, in a
// namespace. It writes its rules as it does on any host, by iptables.
type Docker struct{ *daemons }

// DockerNeeds is what StartDocker asks of the machine.
func DockerNeeds() []testnet.Feature {
	return []testnet.Feature{
		testnet.Program("dockerd"), testnet.Program("docker"), testnet.Program("iptables"), testnet.Program("busybox"),
	}
}

// StartDocker starts it and waits until it answers. The caller stops it.
func StartDocker(ctx context.Context, n *testnet.Namespace) (*Docker, error) {
	daemons, err := newDaemons(n)
	if err != nil {
		return nil, err
	}
	d := &Docker{daemons}
	p := d.private
	p.env = []string{"DOCKER_HOST=unix://" + filepath.Join(p.dir, "docker.sock")}
	// A tree of control groups that it finds where it looks for one, whatever the
	// machine has there.
	err = d.daemon("sh", "-c", `mount -t cgroup2 none /sys/fs/cgroup && exec dockerd "$@"`, "sh",
		"--host="+strings.TrimPrefix(p.env[0], "DOCKER_HOST="), "--data-root="+filepath.Join(p.dir, "data"),
		"--exec-root="+filepath.Join(p.dir, "exec"), "--pidfile="+filepath.Join(p.dir, "pid"),
		"--storage-driver=vfs", "--exec-opt=native.cgroupdriver=cgroupfs")
	if err == nil {
		err = d.until(ctx, func() bool { _, err := d.Run(ctx, "version"); return err == nil })
	}
	if err == nil {
		err = d.image(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("start dockerd: %w", d.failed(err))
	}
	return d, nil
}

// Run runs docker and returns what it says.
func (d *Docker) Run(ctx context.Context, args ...string) (string, error) {
	return d.private.run(ctx, "docker", args...)
}

// image makes the image "lab", which holds busybox.
func (d *Docker) image(ctx context.Context) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Name: "busybox", Mode: 0o755, Size: int64(len(program))}); err != nil {
		return err
	}
	if _, err := w.Write(program); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := d.private.file("lab.tar", archive.String()); err != nil {
		return err
	}
	_, err = d.Run(ctx, "import", filepath.Join(d.private.dir, "lab.tar"), "lab")
	return err
}

// Publish runs a web server in a container, with its port 80 published as another.
func (d *Docker) Publish(ctx context.Context, port uint16) error {
	_, err := d.Run(ctx, "run", "--detach", "--stop-signal", "KILL", "--publish", strconv.Itoa(int(port))+":80", "lab", "/busybox", "httpd", "-f", "-p", "80")
	return err
}
