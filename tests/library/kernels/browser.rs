//! Chromium's compiler, Tint, accepts every text for browsers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;

/// A page that compiles named texts and posts the errors of each.
const PAGE: &str = include_str!("tint.html");

/// Answers a request with the page, or returns the posted body.
fn serve(stream: &mut TcpStream, page: &str) -> std::io::Result<Option<String>> {
    stream.set_nonblocking(false)?;
    let (mut lines, mut length, mut first) = (BufReader::new(stream.try_clone()?), 0, String::new());
    lines.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        lines.read_line(&mut line)?;
        match line.trim().to_ascii_lowercase().split_once("content-length:") {
            Some((_, value)) => length = value.trim().parse().unwrap_or(0),
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body)?;
    let answer = if first.starts_with("GET / ") { page } else { "" };
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length:";
    write!(stream, "{head} {}\r\n\r\n{answer}", answer.len())?;
    Ok(first.starts_with("POST /said").then(|| String::from_utf8_lossy(&body).into_owned()))
}

/// Returns Chromium's errors for texts; `None` without Chromium.
fn said_by_chromium(texts: &serde_json::Value) -> Option<String> {
    let chromium = env::var("KOLMO_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this host");
    listener.set_nonblocking(true).expect("it can be asked again and again");
    let address = listener.local_addr().expect("it has an address");
    let profile = tempfile::tempdir().expect("a temporary folder");
    let started = Command::new(&chromium)
        .args(["--headless", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"])
        .args(["--enable-unsafe-swiftshader", "--no-first-run"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("http://{address}/"))
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(e) if e.kind() == ErrorKind::NotFound => return None,
        Err(e) => panic!("{chromium} does not start: {e}"),
    };
    // `</` would close the script in the page.
    let page = PAGE.replace("TEXTS", &texts.to_string().replace("</", "<\\/"));
    let begun = Instant::now();
    let mut said = None;
    while said.is_none() && begun.elapsed() < Duration::from_secs(120) {
        match listener.accept() {
            // Browsers also open connections that they drop without a request.
            Ok((mut stream, _)) => said = serve(&mut stream, &page).unwrap_or(None),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    Some(said.unwrap_or_else(|| panic!("{chromium} said nothing for two minutes")))
}

#[test]
fn texts_for_browsers_need_nothing_beyond_webgpu() {
    for kernel in all() {
        for precision in [Precision::F32, Precision::Q64].into_iter().filter(|&p| kernel.has(p)) {
            let text = kernel.text_for_browsers(precision);
            let module = naga::front::wgsl::parse_str(&text).expect("it parses, as it does for lanes");
            let checked = Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module);
            assert!(checked.is_ok(), "{} in {precision}: {checked:?}", kernel.name);
        }
    }
}

#[test]
#[ignore = "slow: starts Chromium"]
fn tint_accepts_every_kernel() {
    let mut texts = serde_json::Map::new();
    for kernel in all() {
        texts.insert(kernel.name.to_owned(), kernel.text_for_browsers(Precision::F32).into());
        if kernel.has(Precision::Q64) {
            let text = kernel.text_for_browsers(Precision::Q64);
            texts.insert(format!("{} in limbs", kernel.name), text.into());
        }
    }
    let count = texts.len();
    // A barrier that some threads of a workgroup do not reach.
    let scale = kernel_named("scale").text(Precision::F32);
    texts.insert(
        "broken".to_owned(),
        scale.replace("y[p.own + i] =", "workgroupBarrier(); y[p.own + i] =").into(),
    );
    let Some(said) = said_by_chromium(&texts.into()) else {
        return crate::devices::skip("chromium", "no Chromium on the path or in KOLMO_CHROMIUM");
    };
    let mut said: std::collections::BTreeMap<String, String> =
        serde_json::from_str(&said).expect("what the page posts");
    let broken = said.remove("broken").unwrap_or_else(|| panic!("{said:?}"));
    assert!(broken.contains("uniform"), "a barrier behind a return: {broken:?}");
    let refused: Vec<_> = said.iter().filter(|(_, what)| !what.is_empty()).collect();
    assert!(refused.is_empty(), "{refused:?}");
    assert_eq!(said.len(), count);
}
