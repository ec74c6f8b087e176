//! Forms with files, as far as an upload needs them (RFC 7578).

/// One part of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) file_name: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

/// The parts of a body.
pub(crate) fn parts(content_type: &str, body: &[u8]) -> Result<Vec<Part>, String> {
    if !content_type.to_ascii_lowercase().starts_with("multipart/form-data") {
        return Err(format!("the body is `{content_type}` and must be `multipart/form-data`"));
    }
    let boundary = parameter(content_type, "boundary").ok_or("the form has no boundary")?;
    let mark = format!("--{boundary}").into_bytes();
    let between = [b"\r\n", mark.as_slice()].concat();
    let mut rest = body.strip_prefix(mark.as_slice()).ok_or("the form does not begin with its boundary")?;
    let mut parts = Vec::new();
    loop {
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        rest = rest.strip_prefix(b"\r\n").ok_or("a part of the form is malformed")?;
        let head = find(rest, b"\r\n\r\n").ok_or("a part of the form has no end of its head")?;
        let (headers, after) = (&rest[..head], &rest[head + 4..]);
        let end = find(after, &between).ok_or("a part of the form has no end")?;
        let headers = String::from_utf8_lossy(headers);
        let disposition = headers
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))
            .ok_or("a part of the form has no name")?;
        parts.push(Part {
            name: parameter(disposition, "name").ok_or("a part of the form has no name")?,
            file_name: parameter(disposition, "filename"),
            bytes: after[..end].to_vec(),
        });
        rest = &after[end + between.len()..];
    }
}

/// The value of `name=value` or `name="value"` after a semicolon.
fn parameter(text: &str, name: &str) -> Option<String> {
    text.split(';').skip(1).find_map(|part| {
        let (key, value) = part.trim().split_once('=')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"').to_owned())
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let first = *wanted.first()?;
    let mut from = 0;
    loop {
        let place = from + bytes[from..].iter().position(|byte| *byte == first)?;
        if bytes[place..].starts_with(wanted) {
            return Some(place);
        }
        from = place + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_parted_byte_for_byte() {
        let body = b"--X\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--X\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.jsonl\"\r\nContent-Type: application/jsonl\r\n\r\n{\"a\":\r\n1}\n\r\n--X--\r\n";
        let parts = parts("multipart/form-data; boundary=X", body).unwrap();
        assert_eq!(parts.len(), 2);
        assert_eq!((parts[0].name.as_str(), parts[0].bytes.as_slice()), ("purpose", b"batch".as_slice()));
        assert_eq!(
            (parts[1].file_name.as_deref(), parts[1].bytes.as_slice()),
            (Some("a.jsonl"), b"{\"a\":\r\n1}\n".as_slice())
        );
    }

    #[test]
    fn forms_that_break_off_are_errors() {
        for body in [&b""[..], b"--X", b"--X\r\n", b"--X\r\nname\r\n\r\nx", b"--X\r\n\r\n\r\n\r\n--X--"] {
            assert!(parts("multipart/form-data; boundary=X", body).is_err());
        }
        assert!(parts("application/json", b"{}").is_err());
    }
}
