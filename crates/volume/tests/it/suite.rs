//! The laws of the request form, all of them.

use super::site::Volume;

async fn fresh() -> Volume {
    Volume::fresh(1).await
}

weft_conformance::file_system_suite!(fresh);
