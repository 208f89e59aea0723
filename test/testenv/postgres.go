package testenv

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

func postgresKind() databaseKind {
	return databaseKind{
		engine: Postgres,
		title:  "PostgreSQL",
		user:   "postgres",
		ready:  "database system is ready to accept connections",
		version: func(printed string) string { // postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
			_, rest, _ := strings.Cut(printed, ") ")
			version, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			return version
		},
		prepare: preparePostgres,
		created: func(s *databaseServer) error {
			_, err := s.run("postgres", "CREATE DATABASE "+DatabaseName+";")
			return err
		},
		arguments: func(dir string, port int, _ databaseConfig) []string {
			return []string{"-D", filepath.Join(dir, "data"), "-p", strconv.Itoa(port)}
		},
		client:      psql,
		anyDatabase: "postgres",
		url: func(addr, database string) string {
			u := url.URL{Scheme: "postgres", User: url.UserPassword(DatabaseUser, DatabasePassword), Host: addr,
				Path: "/" + database, RawQuery: "sslmode=disable"}
			return u.String()
		},
		drop:     func(database string) string { return "DROP DATABASE IF EXISTS " + database + " WITH (FORCE);" },
		replicas: postgresReplicas{},
		removed:  removeSharedMemory,
	}
}

// preparePostgres makes the data directory with its configuration.
func preparePostgres(s *databaseServer, c databaseConfig) error {
	password := filepath.Join(s.dir, "password")
	if err := os.WriteFile(password, []byte(DatabasePassword), 0o600); err != nil {
		return fmt.Errorf("write the password: %w", err)
	}
	if err := s.account.own(password); err != nil {
		return fmt.Errorf("hand over the password: %w", err)
	}
	data := filepath.Join(s.dir, "data")
	err := s.newData(postgresProgram(s.binary, "initdb"), "-D", data, "-U", DatabaseUser, "--pwfile="+password,
		"-A", "scram-sha-256", "--locale=C", "-E", "UTF8", "--no-sync", "--no-instructions")
	if err != nil {
		return err
	}
	settings := []string{
		"listen_addresses = '127.0.0.1'",
		"unix_socket_directories = ''",
		"max_connections = 200",
		"shared_buffers = 64MB",
		"dynamic_shared_memory_type = mmap", // a server that a test kills leaves nothing in /dev/shm
		"timezone = 'UTC'",
		"log_timezone = 'UTC'",
	}
	if !c.durable {
		// A commit still reaches the kernel before it is answered, so that killing
		// the server loses nothing.
		settings = append(settings, "fsync = off", "full_page_writes = off")
	}
	return appendLines(filepath.Join(data, "postgresql.conf"), append(settings, c.settings...))
}

func appendLines(path string, lines []string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}

// postgresProgram is the path of a program that comes with the server's.
func postgresProgram(server, name string) string {
	if real, err := filepath.EvalSymlinks(server); err == nil {
		server = real
	}
	return filepath.Join(filepath.Dir(server), name)
}

func psql(s *databaseServer, database string) *exec.Cmd {
	cmd := account{}.command(os.TempDir(), postgresProgram(s.binary, "psql"), "-X", "-q", "-A", "-t", "-v",
		"ON_ERROR_STOP=1",
		"-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", DatabaseUser, "-d", database)
	cmd.Env = append(cmd.Env, "PGPASSWORD="+DatabasePassword, "PGCONNECT_TIMEOUT=10")
	return cmd
}

// removeSharedMemory removes the segment that a killed server leaves behind; the
// lock file names it in its last but one line. One that is gone already is as
// good.
func removeSharedMemory(s *databaseServer) {
	lock, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(lock), "\n")
	if len(lines) < 7 {
		return
	}
	if words := strings.Fields(lines[6]); len(words) == 2 { // key and id
		_ = exec.Command("ipcrm", "-m", words[1]).Run()
	}
}
