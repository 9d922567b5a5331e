//! The keyring that Linux desktops have: a session bus, GNOME's keyring, and libsecret's own program.

use std::process::Command;

use super::*;

const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=ADDRESS</listen>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>"#;

/// A desktop without a screen: a bus with a keyring on it, both ended when dropped.
struct Desktop {
    running: Vec<Child>,
    folder: tempfile::TempDir,
    home: PathBuf,
}

impl Desktop {
    /// `None`, said aloud, where the programs are not installed.
    fn start(home: &Path) -> Option<Self> {
        for program in ["dbus-daemon", "gnome-keyring-daemon", "secret-tool"] {
            let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output();
            if !found.is_ok_and(|output| output.status.success()) {
                println!("SKIPPED: `{program}` is not installed; no keyring is tried");
                return None;
            }
        }
        // Not below the project: the path of a socket is short.
        let folder = tempfile::Builder::new().prefix("ring").tempdir_in("/tmp").unwrap();
        let mut desktop = Self { running: Vec::new(), folder, home: home.to_owned() };
        let socket = desktop.socket();
        let config = desktop.folder.path().join("bus.conf");
        fs::write(&config, BUS.replace("ADDRESS", &socket.display().to_string())).unwrap();
        let mut bus = Command::new("dbus-daemon");
        bus.arg("--nofork").arg("--config-file").arg(&config);
        desktop.running.push(bus.stderr(Stdio::null()).spawn().unwrap());
        until("the bus", || socket.exists().then_some(()));
        let mut keyring = desktop.command("gnome-keyring-daemon");
        keyring.args(["--foreground", "--unlock", "--components=secrets"]);
        let mut keyring = keyring.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        keyring.stdin.take().unwrap().write_all(b"the person's password").unwrap();
        desktop.running.push(keyring);
        until("the keyring", || {
            let mut probe = desktop.command("secret-tool");
            let mut probe = probe
                .args(["store", "--label=probe", "probe", "yes"])
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let _ = probe.stdin.take().unwrap().write_all(b"x");
            probe.wait().unwrap().success().then_some(())
        });
        Some(desktop)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("bus")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("HOME", &self.home).env_remove("XDG_DATA_HOME");
        self.inside(command)
    }

    /// The command as a program of this desktop.
    fn inside(&self, mut command: Command) -> Command {
        let address = format!("unix:path={}", self.socket().display());
        command.env("DBUS_SESSION_BUS_ADDRESS", address);
        command.env("XDG_RUNTIME_DIR", self.folder.path());
        command.env_remove("ADJUTANT_KEYRING");
        command
    }

    /// Everything that Adjutant has in the keyring.
    fn held(&self) -> String {
        let mut search = self.command("secret-tool");
        let found = search.args(["search", "--all", "service", "adjutant"]).output().unwrap();
        String::from_utf8(found.stdout).unwrap()
    }
}

impl Drop for Desktop {
    fn drop(&mut self) {
        for child in self.running.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn j6_tokens_live_in_a_real_keyring_from_login_to_logout() {
    let desk = Desk::new(Ways { lives: (Some(0), HOUR), ..Ways::default() });
    let Some(desktop) = Desktop::start(&desk.stage.context.home()) else { return };
    let login = desk.stage.context.adjutant(["auth", "login", "far", "--no-browser"]);
    let mut login = Login::start(desktop.inside(login));
    assert_eq!(visit(&visit(&login.page()).1.unwrap()).0, 200);
    let ended = login.end();
    assert!(ended.status.success(), "{}", said(&ended));
    assert!(desktop.held().contains("refresh-"), "{}", desktop.held());
    // No file of this user has them in plain text.
    for path in files_below(&desk.stage.context.home()) {
        let bytes = fs::read(&path).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("refresh-"), "{}", path.display());
    }
    // Another process, and another one after it, without a new sign-in.
    for _ in 0..2 {
        works(&mut McpClient::connect(desktop.inside(desk.stage.command())));
    }
    assert_eq!(desk.server.renewals(), 1, "what was renewed is kept too");
    let status = desk.stage.context.adjutant(["auth", "status", "--json"]);
    let status = desktop.inside(status).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status[0]["kept_in"], "keyring", "{status}");
    // Where the desktop is not there, that is said at once.
    let mut elsewhere = desk.stage.command();
    elsewhere.env_remove("DBUS_SESSION_BUS_ADDRESS").env_remove("XDG_RUNTIME_DIR");
    let lost = execute(&mut McpClient::connect(elsewhere), "far", "who", json!({}));
    assert_eq!(code(&lost), "SERVER_UNAVAILABLE");
    assert!(text(&lost).contains("kept in a keyring, and there is none here"), "{lost}");

    let logout = desk.stage.context.adjutant(["auth", "logout", "far"]);
    assert!(desktop.inside(logout).status().unwrap().success());
    assert!(!desktop.held().contains("refresh-"), "{}", desktop.held());
    let after = McpClient::connect(desktop.inside(desk.stage.command()));
    let refused = execute(&mut { after }, "far", "who", json!({}));
    assert!(text(&refused).contains("adjutant auth login far"), "{refused}");
}
